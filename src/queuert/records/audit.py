"""Who did what: the records of the audit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

KEPT = 90 * 86400.0
"""Seconds that records are kept, and also the ended chains of bulk operations."""
FORGOTTEN = 100
"""Records that are removed at a time, besides as many as are added."""


class NewAudit(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is done now. `details` is JSON."""

    action: str
    target: str
    chain_id: str | None = None
    by: str | None = None
    reason: str | None = None
    details: bytes | None = None


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done by hand."""

    id: int
    """Later records have higher numbers."""
    at: datetime
    """When it was done, by the database's clock."""
    action: str
    """"pause", "resume", "trigger", "cancel", "retry", "delete", "backfill", "set_limit",
    "clear_limit", "repair" or "prune". Of bulk operations: "bulk-retry" and so on."""
    target: str
    """What it was done to: a pause's target, the type of a chain, "schedule" and its name, "limit"
    and its name and key, the filter of a bulk operation, the "ended chains" of a prune, or what the
    doctor has repaired."""
    chain_id: str | None = None
    """The chain that was changed, that of the bulk operation, or the one that a schedule was
    triggered for."""
    by: str | None = None
    """Who did it."""
    reason: str | None = None
    """Why."""
    details: dict[str, Any] | None = None
    """What else was asked for, for example `{"cascade": true}`."""


def details_of(given: dict[str, Any]) -> bytes | None:
    """As it is stored, without what is not set."""
    left = {name: value for name, value in given.items() if value is not None and value is not False}
    return msgspec.json.encode(left) if left else None


def read_details(stored: bytes | str | None) -> dict[str, Any] | None:
    return None if stored is None else msgspec.json.decode(stored, type=dict[str, Any])
