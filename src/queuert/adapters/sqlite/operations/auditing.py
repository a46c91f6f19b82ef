"""Who did what."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sql.auditing import list_audit
from queuert.adapters.sqlite.operations.base import BaseOperations, array
from queuert.adapters.sqlite.operations.rows import moment
from queuert.ports.program import Program
from queuert.records.audit import FORGOTTEN, KEPT, AuditRecord, NewAudit


class Auditing(BaseOperations):
    def record_audit(self, entries: Sequence[NewAudit], kept: float = KEPT) -> Program[None]:
        if entries:
            rows = [
                (each.action, each.target, each.chain_id, each.by, each.reason, each.details and each.details.decode())
                for each in entries
            ]
            now = self.now()
            yield self.statement("auditing.forget", limit=len(rows) + FORGOTTEN, before=now - round(kept * 1_000_000))
            yield self.statement("auditing.record", entries=array(rows), now=now)

    def list_audit(self, limit: int, after: int | None, chain_id: str | None = None) -> Program[list[AuditRecord]]:
        return list_audit(self.statement, moment, limit, after, chain_id)
