"""Deleting what has been kept long enough."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row
from queuert.ports.program import Program
from queuert.records.retention import NOTED_COUNTED, KeepPolicy, Pruned, PruneRequest, Retention, TypeRetention


class Pruning(BaseOperations):
    def store_policies(self, policies: Sequence[KeepPolicy]) -> Program[list[str]]:
        if not policies:
            return []
        rows: list[Row] = yield self.statement(
            "prune.store",
            types=[policy.chain_type for policy in policies],
            completed=[policy.completed for policy in policies],
            failed=[policy.failed for policy in policies],
            cancelled=[policy.cancelled for policy in policies],
            expired=[policy.expired for policy in policies],
            archived=[policy.archived for policy in policies],
            months=[policy.months for policy in policies],
        )
        changed = {row[0] for row in rows}
        return [policy.chain_type for policy in policies if policy.chain_type in changed]

    def retention(self) -> Program[Retention]:
        rows: list[Row] = yield self.statement("prune.policies", counted=NOTED_COUNTED)
        types = [TypeRetention(KeepPolicy(*row[:7]), *row[7:]) for row in rows]
        ((noted, pruned_at, began_at, ended_at),) = yield self.statement("prune.state", counted=NOTED_COUNTED)
        return Retention(types, noted, pruned_at, began_at, ended_at)

    def prune(self, request: PruneRequest) -> Program[Pruned]:
        rows: list[Row] = yield self.statement(
            "prune.prune",
            limit=request.limit,
            exact=request.exact,
            lap=request.lap_every,
            restart=request.restart,
        )
        kinds = {row[0] for row in rows}
        deleted = sorted((type_name, chains, jobs) for kind, type_name, chains, jobs, *_ in rows if kind == "deleted")
        took, behind, kept = next((row[4:] for row in rows if row[0] == "examined"), (0.0, 0.0, 0.0))
        return Pruned(
            {type_name: chains for type_name, chains, _ in deleted},
            sum(jobs for _, _, jobs in deleted),
            sum(row[2] for row in rows if row[0] == "examined"),
            more="more" in kinds,
            busy="busy" in kinds,
            lap="lap" in kinds,
            took=took,
            behind=behind,
            kept=kept,
        )
