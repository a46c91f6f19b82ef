"""The workers that are known, by the locks that their listening connections hold."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, utc
from queuert.ports.program import Program
from queuert.records.workers import OVERDUE, SEEN_EVERY, LastHandled, WorkerAbout, WorkerRow, decode_about

_LATE = {"seen_every": SEEN_EVERY, "overdue": OVERDUE}
"""When a registration is late."""


class Workers(BaseOperations):
    def register_worker(
        self, worker_id: str, *, lock_key: int | None = None, horizon: int = 0, about: WorkerAbout | None = None
    ) -> Program[WorkerRow]:
        rows: list[Row] = yield self.statement(
            "workers.register",
            worker=worker_id,
            lock_key=lock_key,
            horizon=horizon,
            types=[] if about is None else list(about.types),
            about=None if about is None else about.encode(),
            **_LATE,
        )
        return _worker_of(rows[0])

    def move_horizon(self, worker_id: str, horizon: int) -> Program[bool]:
        """The row is where the last move has left it, unless another statement has written it
        since.
        """
        rows: list[Row] = []
        asked = {"worker": worker_id, "horizon": horizon}
        if (place := self.worker_rows.get(worker_id)) is not None:
            rows = yield self.statement("workers.move_at", place=place, **asked)
        if not rows:
            rows = yield self.statement("workers.move", **asked)
        if rows:
            self.worker_rows[worker_id] = rows[0][0]
        return bool(rows)

    def forget_worker(self, worker_id: str) -> Program[bool]:
        self.worker_rows.pop(worker_id, None)
        rows: list[Row] = yield self.statement("workers.forget", worker=worker_id)
        return bool(rows[0][0])

    def clean_workers(self, *, unseen_for: float) -> Program[list[str]]:
        rows: list[Row] = yield self.statement("workers.clean", unseen_for=unseen_for)
        return sorted(row[0] for row in rows)

    def dead_workers(self, worker_id: str, types: Sequence[str], *, grace: float) -> Program[list[str]]:
        if not types:
            return []
        rows: list[Row] = yield self.statement("workers.dead", worker=worker_id, types=list(types), grace=grace)
        return sorted(row[0] for row in rows)

    def list_workers(self) -> Program[list[WorkerRow]]:
        rows: list[Row] = yield self.statement("workers.list", **_LATE)
        return sorted(map(_worker_of, rows), key=lambda worker: worker.id)

    def handled_types(self, types: Sequence[str]) -> Program[list[str]]:
        if not types:
            return []
        rows: list[Row] = yield self.statement("workers.handled", types=list(types), **_LATE)
        found = {row[0] for row in rows}
        return [name for name in types if name in found]

    def places(self, worker_id: str, types: Sequence[str]) -> Program[dict[str, tuple[int, int]]]:
        rows: list[Row] = yield self.statement(
            "workers.places", worker=worker_id, types=list(types), late=OVERDUE * SEEN_EVERY
        )
        return {name: (place, number) for name, place, number in rows}

    def last_handled(self, types: Sequence[str]) -> Program[list[LastHandled | None]]:
        if not types:
            return []
        rows: list[Row] = yield self.statement("workers.last_handled", types=list(types))
        found = {name: LastHandled(name, utc(seen_at), host, release) for name, seen_at, host, release in rows}
        return [found.get(name) for name in types]


def _worker_of(row: Row) -> WorkerRow:
    (worker_id, registered_at, seen_at, horizon, server_started, lock_key, silent_since, process, about, state,
     held) = row  # fmt: skip
    return WorkerRow(
        worker_id,
        utc(registered_at),
        utc(seen_at),
        horizon,
        utc(server_started) if server_started else None,
        lock_key,
        utc(silent_since) if silent_since else None,
        process,
        decode_about(about),
        state,
        held,
    )
