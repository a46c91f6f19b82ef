"""The workers that are known. There is no server: a worker is a process, here or elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.horizons import Horizons
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.reading import Reading
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, moment
from queuert.adapters.sqlite.processes import Processes
from queuert.ports.program import Program
from queuert.records.workers import LastHandled, WorkerAbout, WorkerRow, WorkerState, decode_about, overdue_after


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
        about: WorkerAbout | None = None,
    ) -> Program[WorkerRow]:
        """There are no locks here that a worker could hold. In a transaction, so that the watch
        knows the commit as our own.
        """
        return together(self._register(worker_id, horizon, about))

    def _register(self, worker_id: str, horizon: int, about: WorkerAbout | None) -> Program[WorkerRow]:
        database = yield from self._path()
        yield self.statement(
            "workers.register",
            worker=worker_id,
            now=self.now(),
            horizon=horizon,
            process=self.processes.this_one(),
            has_file=self.horizons.create(database, worker_id),
            about=None if about is None else about.encode(),
        )
        (row,) = yield from self._listed(worker_id)
        return row

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
        now = self.now()
        rows: list[Row] = yield self.statement("workers.forget", worker=worker_id)
        yield from self._keep_handled((now, about) for (about,) in rows)
        gone = not (yield self.statement("workers.stopped", worker=worker_id, now=now))
        database = yield from self._path()
        self.horizons.close(database, worker_id)
        if gone:
            self.horizons.remove(database, worker_id)
        return gone

    def clean_workers(self, *, unseen_for: float) -> Program[list[str]]:
        return together(self._clean(unseen_for))

    def _clean(self, unseen_for: float) -> Program[list[str]]:
        rows: list[Row] = yield self.statement("workers.unseen", limit=add_seconds(self.now(), -unseen_for))
        gone = sorted(row[0] for row in rows)
        if gone:
            yield from self._keep_handled((seen_at, about) for _, seen_at, about in rows)
            yield self.statement("workers.remove", workers=array(gone))
        for worker_id in gone:
            self.horizons.remove((yield from self._path()), worker_id)
        return gone

    def _keep_handled(self, told: Iterable[tuple[int, str | None]]) -> Program[None]:
        """Remember where the types of workers were handled, whose rows are gone."""
        handled = [
            (name, seen_at, about.host, about.release)
            for seen_at, text in told
            if (about := decode_about(text)) is not None
            for name in about.types
        ]
        if handled:
            yield self.statement("workers.keep_handled", handled=array(handled))

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
        return self._listed(None)

    def _listed(self, worker_id: str | None, *, count: bool = True) -> Program[list[WorkerRow]]:
        """All workers, or one of them; with the number of their jobs."""
        rows: list[Row] = yield self.statement("workers.list", worker=worker_id)
        held: list[tuple[str, int]] = (yield self.statement("workers.held")) if count else []
        database, now, counts = (yield from self._path()), moment(self.now()), dict(held)
        return [self._worker_of(row, database, now, counts.get(row[0], 0)) for row in rows]

    def _worker_of(self, row: Row, database: str, now: datetime, held: int) -> WorkerRow:
        worker_id, registered_at, seen_at, stored, process, has_file, text, stopped_at = row
        horizon = self._horizon(worker_id, stored, has_file, database)
        known = stored if horizon is None else horizon
        about, seen = decode_about(text), moment(seen_at)
        state: WorkerState
        if stopped_at is not None or (process is not None and self.processes.has_ended(process)):
            state = "dead"
        else:
            state = "alive" if seen > now - timedelta(seconds=overdue_after(about)) else "unknown"
        return WorkerRow(
            worker_id, moment(registered_at), seen, known, process=process, about=about, state=state, held=held
        )

    def handled_types(self, types: Sequence[str]) -> Program[list[str]]:
        if not types:
            return []
        alive = [row for row in (yield from self._listed(None, count=False)) if row.state == "alive"]
        return [name for name in types if any(row.about is None or name in row.about.types for row in alive)]

    def last_handled(self, types: Sequence[str]) -> Program[list[LastHandled | None]]:
        if not types:
            return []
        known: list[Row] = yield self.statement("workers.last_handled", types=array(types))
        workers: list[Row] = yield self.statement("workers.list", worker=None)
        found = {name: LastHandled(name, moment(seen_at), host, release) for name, seen_at, host, release in known}
        for row in workers:
            about, seen_at = decode_about(row[6]), moment(row[2])
            if about is None:
                continue
            for name in about.types:
                if name not in found or found[name].seen_at <= seen_at:
                    found[name] = LastHandled(name, seen_at, about.host, about.release)
        return [found.get(name) for name in types]
