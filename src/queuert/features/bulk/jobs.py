"""Bulk operations as jobs: each page is one, and the next page is its continuation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

import msgspec

from queuert.base.statuses import OPEN, Status
from queuert.jobs.job import EntryJob, name_of
from queuert.records.listings import ChainFilter

BulkAction = Literal["retry", "cancel", "delete", "trigger", "set_priority"]

CHANGEABLE: dict[BulkAction, frozenset[Status] | None] = {
    "retry": frozenset(("failed",)),
    "cancel": OPEN,
    "delete": None,
    "trigger": frozenset(("pending",)),
    "set_priority": frozenset(("blocked", "pending")),
}
"""The statuses of the current jobs of chains that this action can change. None: any."""

TOTAL = 10_000
"""Chains that a bulk operation counts before it begins."""


class BulkResult(msgspec.Struct, frozen=True):
    """What a bulk operation has done: the output of its chain."""

    changed: int
    """How many chains were changed, without those that only `cascade` led to."""
    unchanged: int
    """How many chains were found and left as they are: by then they no longer matched, or they
    could not be changed."""
    cascaded: int = 0
    """How many other chains were changed because of `cascade`."""


@dataclass(frozen=True, kw_only=True)
class BulkInput:
    """What to do, and how far it is done."""

    filter: str
    """The filter as text."""
    where: ChainFilter
    """The same, as it was when the operation was started."""
    cascade: bool = False
    priority: int | None = None
    per_second: float | None = None
    by: str | None = None
    reason: str | None = None
    started: datetime | None = None
    """By the database's clock. None on the first page: its job was created then."""
    cursor: str | None = None
    """Where the page before ended."""
    total: int | None = None
    """How many chains matched on the first page, counted up to one more than `TOTAL`."""
    size: int | None = None
    """The size of the next page, if the one before had to be smaller."""
    changed: int = 0
    unchanged: int = 0
    cascaded: int = 0


class BulkRetry(BulkInput, EntryJob[BulkResult, "BulkRetry"], name="queuert.bulk-retry"):
    """`client.bulk_retry`."""


class BulkCancel(BulkInput, EntryJob[BulkResult, "BulkCancel"], name="queuert.bulk-cancel"):
    """`client.bulk_cancel`."""


class BulkDelete(BulkInput, EntryJob[BulkResult, "BulkDelete"], name="queuert.bulk-delete"):
    """`client.bulk_delete`."""


class BulkTrigger(BulkInput, EntryJob[BulkResult, "BulkTrigger"], name="queuert.bulk-trigger"):
    """`client.bulk_trigger`."""


class BulkSetPriority(BulkInput, EntryJob[BulkResult, "BulkSetPriority"], name="queuert.bulk-set-priority"):
    """`client.bulk_set_priority`."""


BulkJob = BulkRetry | BulkCancel | BulkDelete | BulkTrigger | BulkSetPriority

BULK_CLASSES: dict[BulkAction, type[Any]] = {
    "retry": BulkRetry,
    "cancel": BulkCancel,
    "delete": BulkDelete,
    "trigger": BulkTrigger,
    "set_priority": BulkSetPriority,
}

OWN_NAMES: tuple[str, ...] = tuple(map(name_of, BULK_CLASSES.values()))
"""The library's own job types. Every worker of this version runs them."""
