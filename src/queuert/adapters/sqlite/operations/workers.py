"""The workers that are known. There is no server: a worker is a process, here or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.reading import Reading
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, moment
from queuert.adapters.sqlite.processes import Processes
from queuert.model import WorkerRow
from queuert.ports.program import Program


class Workers(Reading):
    processes = Processes()
    """The processes of this machine."""

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
        rows: list[Row] = yield self.statement(
            "workers.register", worker=worker_id, now=self.now(), horizon=horizon, process=self.processes.this_one()
        )
        return _worker_of(rows[0])

    def forget_worker(self, worker_id: str) -> Program[bool]:
        return together(self._forget(worker_id))

    def _forget(self, worker_id: str) -> Program[bool]:
        yield self.statement("workers.forget", worker=worker_id)
        return not (yield self.statement("workers.known", worker=worker_id))

    def clean_workers(self, *, unseen_for: float) -> Program[list[str]]:
        rows: list[Row] = yield self.statement("workers.clean", limit=add_seconds(self.now(), -unseen_for))
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
        return [_worker_of(row) for row in rows]


def _worker_of(row: Row) -> WorkerRow:
    worker_id, registered_at, seen_at, horizon, process = row
    return WorkerRow(worker_id, moment(registered_at), moment(seen_at), horizon, process=process)
