"""The workers that are known. Memory belongs to one process, so none of them can die alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Tables
from queuert.records.workers import LastHandled, WorkerAbout, WorkerRow, WorkerState, overdue_after


class Workers:
    @write
    def register_worker(
        self,
        tables: Tables,
        worker_id: str,
        *,
        lock_key: int | None = None,  # noqa: ARG002
        horizon: int = 0,
        about: WorkerAbout | None = None,
    ) -> WorkerRow:
        """There are no locks here that a worker could hold."""
        known = tables.workers.get(worker_id) or WorkerRow(worker_id, tables.now, tables.now)
        tables.workers[worker_id] = replace(
            known,
            seen_at=tables.now,
            horizon=max(tables.horizon(known), horizon),
            about=known.about if about is None else about,
        )
        tables.stopped -= {worker_id}
        return listed_worker(tables, worker_id)

    @read
    def move_horizon(self, tables: Tables, worker_id: str, horizon: int) -> bool:
        """Changes the data in place: this is called often, and a new version would copy the
        data.
        """
        known = tables.workers.get(worker_id)
        if known is not None:
            tables.horizons[worker_id] = max(tables.horizon(known), horizon)
        return known is not None

    @write
    def forget_worker(self, tables: Tables, worker_id: str) -> bool:
        if worker_id in tables.workers:
            if _held(tables, worker_id):
                tables.stopped |= {worker_id}
            else:
                _remove(tables, worker_id, tables.now)
        return worker_id not in tables.workers

    @write
    def clean_workers(self, tables: Tables, *, unseen_for: float) -> list[str]:
        limit = tables.now - timedelta(seconds=unseen_for)
        gone = [row for row in tables.workers.values() if row.seen_at <= limit and not _held(tables, row.id)]
        for row in gone:
            _remove(tables, row.id, row.seen_at)
        return sorted(row.id for row in gone)

    @read
    def dead_workers(self, tables: Tables, worker_id: str, types: Sequence[str], *, grace: float) -> list[str]:  # noqa: ARG002
        return []

    @read
    def list_workers(self, tables: Tables) -> list[WorkerRow]:
        return [listed_worker(tables, worker_id) for worker_id in sorted(tables.workers)]

    @read
    def handled_types(self, tables: Tables, types: Sequence[str]) -> list[str]:
        alive = [row for row in tables.workers.values() if _state(tables, row) == "alive"]
        return [name for name in types if any(row.about is None or name in row.about.types for row in alive)]

    @read
    def last_handled(self, tables: Tables, types: Sequence[str]) -> list[LastHandled | None]:
        return [_last_handled(tables, name) for name in types]


def listed_worker(tables: Tables, worker_id: str) -> WorkerRow:
    """The row, as it is listed."""
    row = tables.workers[worker_id]
    return replace(row, horizon=tables.horizon(row), state=_state(tables, row), held=_held(tables, worker_id))


def _state(tables: Tables, row: WorkerRow) -> WorkerState:
    if row.id in tables.stopped:
        return "dead"
    return "alive" if row.seen_at > tables.now - timedelta(seconds=overdue_after(row.about)) else "unknown"


def _held(tables: Tables, worker_id: str) -> int:
    """How many jobs are running under this worker's name."""
    return sum(row.leased_by == worker_id for row in tables.jobs.values())


def _remove(tables: Tables, worker_id: str, seen_at: datetime) -> None:
    row = replace(tables.workers.pop(worker_id), seen_at=seen_at)
    tables.horizons.pop(worker_id, None)
    tables.stopped -= {worker_id}
    for name in () if row.about is None else row.about.types:
        known = tables.last_handled.get(name)
        tables.last_handled[name] = _latest(_told_by(name, [row]) + ([] if known is None else [known]))


def _last_handled(tables: Tables, name: str) -> LastHandled | None:
    found = _told_by(name, tables.workers.values())
    if name in tables.last_handled:
        found.append(tables.last_handled[name])
    return _latest(found) if found else None


def _told_by(name: str, rows: Iterable[WorkerRow]) -> list[LastHandled]:
    return [
        LastHandled(name, row.seen_at, row.about.host, row.about.release)
        for row in rows
        if row.about is not None and name in row.about.types
    ]


def _latest(found: Iterable[LastHandled]) -> LastHandled:
    return max(found, key=lambda each: each.seen_at)
