"""The workers that are known, by the locks that their listening connections hold."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.postgres.operations.store import Store
from queuert.adapters.postgres.rows import Row, utc
from queuert.model import WorkerRow
from queuert.ports.program import Program


class Workers(Store):
    def register_worker(self, worker_id: str, *, lock_key: int | None = None, horizon: int = 0) -> Program[WorkerRow]:
        rows: list[Row] = yield self.statement("workers.register", worker=worker_id, lock_key=lock_key, horizon=horizon)
        return _worker_of(rows[0])

    def move_horizon(self, worker_id: str, horizon: int) -> Program[bool]:
        rows: list[Row] = yield self.statement("workers.move", worker=worker_id, horizon=horizon)
        return bool(rows)

    def forget_worker(self, worker_id: str) -> Program[bool]:
        kept: list[Row] = yield self.statement("workers.forget", worker=worker_id)
        return not kept

    def clean_workers(self, *, unseen_for: float) -> Program[list[str]]:
        rows: list[Row] = yield self.statement("workers.clean", unseen_for=unseen_for)
        return sorted(row[0] for row in rows)

    def dead_workers(self, worker_id: str, types: Sequence[str], *, grace: float) -> Program[list[str]]:
        if not types:
            return []
        rows: list[Row] = yield self.statement("workers.dead", worker=worker_id, types=list(types), grace=grace)
        return sorted(row[0] for row in rows)

    def list_workers(self) -> Program[list[WorkerRow]]:
        rows: list[Row] = yield self.statement("workers.list")
        return sorted(map(_worker_of, rows), key=lambda worker: worker.id)


def _worker_of(row: Row) -> WorkerRow:
    worker_id, registered_at, seen_at, horizon, server_started, lock_key, silent_since, process = row
    return WorkerRow(
        worker_id,
        utc(registered_at),
        utc(seen_at),
        horizon,
        utc(server_started) if server_started else None,
        lock_key,
        utc(silent_since) if silent_since else None,
        process,
    )
