"""What a handler is given: its job, and the phases in which it may use the database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import datetime
from typing import Any, Generic, Literal, TypeAlias

from typing_extensions import TypeVar

from queuert.base.blocking import Blocking
from queuert.base.transaction import Transaction
from queuert.client.base import BaseClient
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.engine.sessions import Sessions
from queuert.errors import TransactionMisused
from queuert.jobs.chain import error_record
from queuert.jobs.job import Job
from queuert.worker.base.abort import AbortSignal
from queuert.worker.handlers.claim import Claim, Mode, Phase, Phases
from queuert.worker.handlers.middleware import Values

Conn = TypeVar("Conn", default=Any)
J_co = TypeVar("J_co", bound=Job[Any, Any], covariant=True)

MakePhases: TypeAlias = "Callable[[Sessions[Any], Claim, BaseAttempt[Any, Any]], Phases]"
"""Makes the phases of an attempt when the first one is opened."""


class BaseAttempt(Generic[J_co, Conn]):
    """What `Attempt` and `SyncAttempt` have in common. Middleware is given one of them."""

    __slots__ = ("_claim", "_job", "_make_phases", "_values", "_worker_id")

    def __init__(self, claim: Claim, worker_id: str, phases: MakePhases) -> None:
        self._make_phases = phases
        self._claim = claim
        self._job: Any = claim.job
        self._worker_id = worker_id
        self._values: Values | None = None

    @property
    def job(self) -> J_co:
        """The job. Its blocker fields have their outputs."""
        return self._job  # type: ignore[no-any-return]

    @property
    def number(self) -> int:
        """The number of this attempt, counted from 1.

        A run that costs no attempt has the same number as the next one (see `Reschedule`).
        """
        return self._claim.row.attempt

    @property
    def may_have_run(self) -> bool:
        """Whether an earlier run of this job has begun, however it ended.

        If so, it may have called other systems already. Runs count that cost no attempt, and those
        before `client.retry`.
        """
        return self._claim.claimed.ran_before

    @property
    def signal(self) -> AbortSignal:
        """Tells the handler to stop: its job was lost, its time is over, or the worker stops."""
        return self._claim.signal

    @property
    def values(self) -> Values:
        """The values that middleware has set for this attempt."""
        if self._values is None:
            self._values = Values()
        return self._values

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self._claim.row.id

    @property
    def chain_id(self) -> str:
        """The id of the job's chain."""
        return self._claim.row.chain_id

    @property
    def job_type(self) -> str:
        """The name of the job's type."""
        return self._claim.row.type_name

    @property
    def worker_id(self) -> str:
        """The id of the worker that runs the attempt."""
        return self._worker_id

    @property
    def created_at(self) -> datetime:
        """When the job was created."""
        return self._claim.row.created_at

    @property
    def last_error(self) -> Mapping[str, Any] | None:
        """The error of the last failed attempt: `code`, `type`, `message`, `traceback`, and
        `attributes` if the exception had some that are JSON.

        None if there is none.
        """
        return error_record(self._claim.row.last_error)

    def _phase(
        self, client: BaseClient[Conn], phase: Phase, mode: Mode | None = None
    ) -> AbstractAsyncContextManager[Transaction[Conn], None]:
        if self._claim.phases is None:
            self._claim.phases = self._make_phases(client.sessions, self._claim, self)
        return self._claim.phases.phase(phase, mode)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number} of {self.job_type} {self.job_id}>"


class Attempt(BaseAttempt[J_co, Conn]):
    """One attempt at a job, for an `async def` handler."""

    __slots__ = ("_client",)

    def __init__(self, claim: Claim, worker_id: str, client: Client[Conn], phases: MakePhases) -> None:
        super().__init__(claim, worker_id, phases)
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
        return self._phase(self._client, "prepare", mode)

    def complete(self) -> AbstractAsyncContextManager[Transaction[Conn], None]:
        """Open the transaction that completes the job. What you write in it takes effect once.

        It commits when the handler returns. An error in the block or after it rolls back
        everything.
        """
        return self._phase(self._client, "complete")


class SyncAttempt(BaseAttempt[J_co, Conn]):
    """One attempt at a job, for a plain `def` handler, which runs in a thread."""

    __slots__ = ("_client",)

    def __init__(self, claim: Claim, worker_id: str, client: SyncClient[Conn] | None, phases: MakePhases) -> None:
        super().__init__(claim, worker_id, phases)
        self._client = client

    @property
    def client(self) -> SyncClient[Conn]:
        """A client for this thread.

        Use it to start further chains in `prepare()` and `complete()`.
        """
        if self._client is None:
            raise TransactionMisused(
                "a plain `def` handler cannot open transactions with this driver: it has no sync counterpart. "
                "Make the handler `async def`, or use a driver that has both"
            )
        return self._client

    def prepare(self, mode: Literal["atomic", "staged"] = "staged") -> AbstractContextManager[Transaction[Conn], None]:
        """Open a transaction to read in. It must come before `complete()`.

        Args:
            mode: "staged" (the default): it commits at the end of the block. Long work may follow,
                and `complete()` opens another transaction. "atomic": `complete()` uses the same
                transaction, which stays open until the handler returns.
        """
        return Blocking(self._phase(self.client, "prepare", mode))

    def complete(self) -> AbstractContextManager[Transaction[Conn], None]:
        """Open the transaction that completes the job. What you write in it takes effect once.

        It commits when the handler returns. An error in the block or after it rolls back
        everything.
        """
        return Blocking(self._phase(self.client, "complete"))
