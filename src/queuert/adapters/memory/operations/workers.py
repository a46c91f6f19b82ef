"""The workers that are known. Memory belongs to one process, so none of them can die alone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Tables
from queuert.model import WorkerRow


class Workers:
    @write
    def register_worker(
        self,
        tables: Tables,
        worker_id: str,
        *,
        lock_key: int | None = None,  # noqa: ARG002
        horizon: int = 0,
    ) -> WorkerRow:
        """There are no locks here that a worker could hold."""
        known = tables.workers.get(worker_id) or WorkerRow(worker_id, tables.now, tables.now)
        row = replace(known, seen_at=tables.now, horizon=max(tables.horizon(known), horizon))
        tables.workers[worker_id] = row
        return row

    @read
    def move_horizon(self, tables: Tables, worker_id: str, horizon: int) -> bool:
        """Not by a new version of the data: it is called often, and they are copied for that."""
        known = tables.workers.get(worker_id)
        if known is not None:
            tables.horizons[worker_id] = max(tables.horizon(known), horizon)
        return known is not None

    @write
    def forget_worker(self, tables: Tables, worker_id: str) -> bool:
        if worker_id in tables.workers and not _has_jobs(tables, worker_id):
            del tables.workers[worker_id]
            tables.horizons.pop(worker_id, None)
        return worker_id not in tables.workers

    @write
    def clean_workers(self, tables: Tables, *, unseen_for: float) -> list[str]:
        limit = tables.now - timedelta(seconds=unseen_for)
        gone = [row.id for row in tables.workers.values() if row.seen_at <= limit and not _has_jobs(tables, row.id)]
        for worker_id in gone:
            del tables.workers[worker_id]
            tables.horizons.pop(worker_id, None)
        return sorted(gone)

    @read
    def dead_workers(self, tables: Tables, worker_id: str, types: Sequence[str], *, grace: float) -> list[str]:  # noqa: ARG002
        return []

    @read
    def list_workers(self, tables: Tables) -> list[WorkerRow]:
        return [replace(row, horizon=tables.horizon(row)) for _, row in sorted(tables.workers.items())]


def _has_jobs(tables: Tables, worker_id: str) -> bool:
    return any(row.leased_by == worker_id for row in tables.jobs.values())
