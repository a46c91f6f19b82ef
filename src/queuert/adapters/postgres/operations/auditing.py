"""Who did what."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import utc
from queuert.adapters.sql.auditing import list_audit
from queuert.ports.program import Program
from queuert.records.audit import FORGOTTEN, KEPT, AuditRecord, NewAudit


class Auditing(BaseOperations):
    def record_audit(self, entries: Sequence[NewAudit], kept: float = KEPT) -> Program[None]:
        if entries:
            yield self.statement(
                "auditing.record",
                actions=[each.action for each in entries],
                targets=[each.target for each in entries],
                chains=[each.chain_id for each in entries],
                by=[each.by for each in entries],
                reasons=[each.reason for each in entries],
                details=[each.details and each.details.decode() for each in entries],
                limit=len(entries) + FORGOTTEN,
                kept=kept,
            )

    def list_audit(self, limit: int, after: int | None, chain_id: str | None = None) -> Program[list[AuditRecord]]:
        return list_audit(self.statement, utc, limit, after, chain_id)
