"""Reading the audit: the same columns in every SQL database, with times in its own form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from queuert.ports.program import Program
from queuert.records.audit import AuditRecord, read_details

_LATEST = 2**63 - 1


def list_audit(
    statement: Callable[..., Any],
    moment: Callable[[Any], datetime],
    limit: int,
    after: int | None,
    chain_id: str | None,
) -> Program[list[AuditRecord]]:
    values = {"limit": limit, "after": _LATEST if after is None else after}
    if chain_id is None:
        rows = yield statement("auditing.list", **values)
    else:
        rows = yield statement("auditing.list_of_chain", chain=chain_id, **values)
    return [
        AuditRecord(
            id=number,
            at=moment(at),
            action=action,
            target=target,
            chain_id=chain,
            by=by,
            reason=reason,
            details=read_details(details),
        )
        for number, at, action, target, chain, by, reason, details in rows
    ]
