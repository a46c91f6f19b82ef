"""What a handler is given: its job, and the phases in which it may use the database."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Generic, Literal

from typing_extensions import TypeVar

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.jobs.chain import error_record
from queuert.jobs.job import Job
from queuert.transaction import Transaction
from queuert.worker.abort import AbortSignal
from queuert.worker.held import Held
from queuert.worker.middleware import Values
from queuert.worker.phases import AsyncPhases, SyncPhases

Conn = TypeVar("Conn", default=Any)
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)


class BaseAttempt(Generic[J_co, Conn]):
    """What `Attempt` and `SyncAttempt` have in common. Middleware is given one of them."""

    __slots__ = ("_held", "_values", "_worker_id")

    def __init__(self, held: Held, worker_id: str) -> None:
        self._held = held
        self._worker_id = worker_id
        self._values: Values | None = None

    @property
    def job(self) -> J_co:
        """The job. Its blocker fields have their outputs."""
        job: Any = self._held.job
        return job  # type: ignore[no-any-return]

    @property
    def number(self) -> int:
        """The number of this attempt, counted from 1."""
        return self._held.row.attempt

    @property
    def signal(self) -> AbortSignal:
        """Tells when the attempt should stop: the job is no longer its own, it timed out, or the
        worker stops.
        """
        return self._held.signal

    @property
    def values(self) -> Values:
        """The values that middleware has set for this attempt."""
        if self._values is None:
            self._values = Values()
        return self._values

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self._held.row.id

    @property
    def chain_id(self) -> str:
        """The id of the job's chain."""
        return self._held.row.chain_id

    @property
    def job_type(self) -> str:
        """The name of the job's type."""
        return self._held.row.type_name

    @property
    def worker_id(self) -> str:
        """The id of the worker that runs the attempt."""
        return self._worker_id

    @property
    def created_at(self) -> datetime:
        """When the job was created."""
        return self._held.row.created_at

    @property
    def last_error(self) -> Mapping[str, Any] | None:
        """The error of the last failed attempt: `code`, `type`, `message`, `traceback`. None if there
        is none.
        """
        return error_record(self._held.row.last_error)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} of {self.job_type} {self.job_id}>"


class Attempt(BaseAttempt[J_co, Conn]):
    """One attempt at a job, for an `async def` handler."""

    __slots__ = ("_client",)

    def __init__(self, held: Held, worker_id: str, client: Client[Conn]) -> None:
        super().__init__(held, worker_id)
        self._client = client

    @property
    def client(self) -> Client[Conn]:
        """The worker's client. Use it to start further chains in `prepare()` and `complete()`."""
        return self._client

    def prepare(
        self, mode: Literal["atomic", "staged"] = "staged"
    ) -> AbstractAsyncContextManager[Transaction[Conn], None]:
        """Open a transaction to read in. It must be the first thing that the handler does.

        Args:
            mode: "staged" (the default): it commits at the end of the block. Long work may follow,
                and `complete()` opens another transaction. "atomic": `complete()` uses the same
                transaction, which stays open until the handler returns.
        """
        return self._phases().prepare(mode)

    def complete(self) -> AbstractAsyncContextManager[Transaction[Conn], None]:
        """Open the transaction that completes the job. What you write in it takes effect once.

        It commits when the handler returns. An error in the block or after it rolls back everything.
        """
        return self._phases().complete()

    def _phases(self) -> AsyncPhases[Conn]:
        phases = self._held.phases
        if not isinstance(phases, AsyncPhases):
            phases = self._held.phases = AsyncPhases(self._client, self._held, self)
        return phases  # pyright: ignore[reportUnknownVariableType]


class SyncAttempt(BaseAttempt[J_co, Conn]):
    """One attempt at a job, for a plain `def` handler, which runs in a thread."""

    __slots__ = ("_client", "_phases")

    def __init__(self, held: Held, worker_id: str, phases: SyncPhases[Conn]) -> None:
        super().__init__(held, worker_id)
        self._phases = phases

    @property
    def client(self) -> SyncClient[Conn]:
        """A client for this thread. Use it to start further chains in `prepare()` and `complete()`."""
        return self._phases.client

    def prepare(self, mode: Literal["atomic", "staged"] = "staged") -> AbstractContextManager[Transaction[Conn], None]:
        """Open a transaction to read in. It must come before `complete()`.

        Args:
            mode: "staged" (the default): it commits at the end of the block. Long work may follow,
                and `complete()` opens another transaction. "atomic": `complete()` uses the same
                transaction, which stays open until the handler returns.
        """
        return self._phases.prepare(mode, self)

    def complete(self) -> AbstractContextManager[Transaction[Conn], None]:
        """Open the transaction that completes the job. What you write in it takes effect once.

        It commits when the handler returns. An error in the block or after it rolls back everything.
        """
        return self._phases.complete(self)
