"""Who did what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Tables
from queuert.records.audit import FORGOTTEN, KEPT, AuditRecord, NewAudit, read_details


class Auditing:
    @write
    def record_audit(self, tables: Tables, entries: Sequence[NewAudit], kept: float = KEPT) -> None:
        first = tables.audit[-1].id + 1 if tables.audit else 1
        tables.audit += tuple(
            AuditRecord(
                id=number,
                at=tables.now,
                action=each.action,
                target=each.target,
                chain_id=each.chain_id,
                by=each.by,
                reason=each.reason,
                details=read_details(each.details),
            )
            for number, each in enumerate(entries, first)
        )
        oldest, limit = tables.now - timedelta(seconds=kept), len(entries) + FORGOTTEN
        tables.audit = tuple(
            each for number, each in enumerate(tables.audit) if number >= limit or each.at >= oldest or each.id >= first
        )

    @read
    def list_audit(
        self, tables: Tables, limit: int, after: int | None, chain_id: str | None = None
    ) -> list[AuditRecord]:
        found = [
            each
            for each in reversed(tables.audit)
            if (after is None or each.id < after) and (chain_id is None or each.chain_id == chain_id)
        ]
        return found[:limit]
