"""The workers that are known. There is no server: a worker is a process, here or elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.horizons import Horizons
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.reading import Reading
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, moment
from queuert.adapters.sqlite.processes import Processes
from queuert.model import WorkerRow
from queuert.ports.program import Program


class Workers(Reading):
    processes = Processes()
    """The processes of this machine."""
    horizons = Horizons()
    """The files of workers."""
    _database: str | None = None
    """The path of the database; empty if it has none."""

    def register_worker(
        self,
        worker_id: str,
        *,
        lock_key: int | None = None,  # noqa: ARG002
        horizon: int = 0,
    ) -> Program[WorkerRow]:
        """There are no locks here that a worker could hold. In a transaction, so that the watch
        knows the commit as our own.
        """
        return together(self._register(worker_id, horizon))

    def _register(self, worker_id: str, horizon: int) -> Program[WorkerRow]:
        database = yield from self._path()
        rows: list[Row] = yield self.statement(
            "workers.register",
            worker=worker_id,
            now=self.now(),
            horizon=horizon,
            process=self.processes.this_one(),
            has_file=self.horizons.create(database, worker_id),
        )
        return self._worker_of(rows[0], database)

    def move_horizon(self, worker_id: str, horizon: int) -> Program[bool]:
        if self.horizons.move((yield from self._path()), worker_id, horizon):
            return True
        return (yield from together(self._move(worker_id, horizon)))

    def _move(self, worker_id: str, horizon: int) -> Program[bool]:
        rows: list[Row] = yield self.statement("workers.move", worker=worker_id, horizon=horizon)
        return bool(rows)

    def known_horizons(self, workers: Iterable[str]) -> Program[list[tuple[str, int]]]:
        """Workers with their horizons, if they are known."""
        database = yield from self._path()
        rows: list[tuple[str, int, int]] = yield self.statement("workers.horizons", workers=array(list(workers)))
        found = [(each, self._horizon(each, stored, has_file, database)) for each, stored, has_file in rows]
        return [(each, horizon) for each, horizon in found if horizon is not None]

    def _horizon(self, worker_id: str, stored: int, has_file: int, database: str) -> int | None:
        if not has_file:
            return stored
        written = self.horizons.read(database, worker_id)
        return None if written is None else max(stored, written)

    def _path(self) -> Program[str]:
        path = self._database
        if path is None:
            rows: list[tuple[str | None]] = yield self.statement("workers.database")
            path = self._database = (rows[0][0] if rows else None) or ""
        return path

    def forget_worker(self, worker_id: str) -> Program[bool]:
        return together(self._forget(worker_id))

    def _forget(self, worker_id: str) -> Program[bool]:
        yield self.statement("workers.forget", worker=worker_id)
        gone = not (yield self.statement("workers.known", worker=worker_id))
        database = yield from self._path()
        self.horizons.close(database, worker_id)
        if gone:
            self.horizons.remove(database, worker_id)
        return gone

    def clean_workers(self, *, unseen_for: float) -> Program[list[str]]:
        rows: list[Row] = yield self.statement("workers.clean", limit=add_seconds(self.now(), -unseen_for))
        for row in rows:
            self.horizons.remove((yield from self._path()), row[0])
        return sorted(row[0] for row in rows)

    def dead_workers(self, worker_id: str, types: Sequence[str], *, grace: float) -> Program[list[str]]:  # noqa: ARG002
        """No grace: a process that has ended does not come back."""
        if not types:
            return []
        known: list[tuple[str, str]] = yield self.statement("workers.processes", worker=worker_id)
        ended = {process for process in {process for _, process in known} if self.processes.has_ended(process)}
        if not ended:
            return []
        dead = [each for each, process in known if process in ended]
        rows: list[Row] = yield self.statement("workers.with_jobs", types=array(types), workers=array(dead))
        return [row[0] for row in rows]

    def list_workers(self) -> Program[list[WorkerRow]]:
        rows: list[Row] = yield self.statement("workers.list")
        database = yield from self._path()
        return [self._worker_of(row, database) for row in rows]

    def _worker_of(self, row: Row, database: str) -> WorkerRow:
        worker_id, registered_at, seen_at, stored, process, has_file = row
        horizon = self._horizon(worker_id, stored, has_file, database)
        known = stored if horizon is None else horizon
        return WorkerRow(worker_id, moment(registered_at), moment(seen_at), known, process=process)
