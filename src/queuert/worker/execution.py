"""Running one handler: in its own task, or, for a plain `def`, in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import OwnershipLost, QueuertError
from queuert.operations.settle import completion, settle
from queuert.ports.provider import run
from queuert.worker.attempt import Attempt, BaseAttempt, SyncAttempt
from queuert.worker.failure import EXPIRED, SERIALIZATION_ERROR
from queuert.worker.held import Held
from queuert.worker.phases import SyncPhases


class Returned(msgspec.Struct, frozen=True):
    """The handler returned a value, or the job to continue with."""

    value: Any


class Raised(msgspec.Struct, frozen=True):
    """The handler raised; or what stands around it did (then `code` says what)."""

    error: BaseException
    code: str | None = None


class SettledInThread(msgspec.Struct, frozen=True):
    """The handler's thread has completed the job in its own transaction."""


class Late(msgspec.Struct, frozen=True):
    """The deadline passed before user code began."""

    code: str = EXPIRED


Outcome = Returned | Raised | SettledInThread | Late


class Execution:
    """Calls handlers. It never raises: whatever happens becomes an outcome."""

    def __init__(self, client: Client[Any], sync_client: SyncClient[Any] | None, worker_id: str) -> None:
        self._client = client
        self._sync_client = sync_client
        self._worker_id = worker_id
        self._loop = asyncio.get_running_loop()

    async def run(self, held: Held) -> Outcome:
        """The body of the attempt's task. Only what a handler's own task raises is caught: that is all it can be."""
        if held.start_by is not None and time.monotonic() >= held.start_by:
            return Late()
        plan = held.plan
        try:
            held.job = plan.job_type.decode_input(held.row.input, held.claimed.blockers)
        except QueuertError as error:
            return Raised(error, SERIALIZATION_ERROR)
        try:
            if plan.is_async:
                return Returned(await self._call_async(held))
            return await self._call_in_thread(held)
        except BaseException as error:
            return Raised(error)

    async def _call_async(self, held: Held) -> Any:
        plan = held.plan
        attempt: Attempt[Any, Any] = Attempt(held, self._worker_id, self._client)
        if plan.onion.all:
            return await plan.onion.call(attempt, lambda: self._innermost(held, attempt))
        return await self._innermost(held, attempt)

    async def _innermost(self, held: Held, attempt: Attempt[Any, Any]) -> Any:
        # Runs at the first chance the loop gets: when the handler has awaited something that was not there yet.
        self._loop.call_soon(held.mark_suspended)
        return refuse_awaitable(await held.plan.function(attempt))

    async def _call_in_thread(self, held: Held) -> Outcome:
        phases: SyncPhases[Any] = SyncPhases(self._sync_client, held, self._loop)
        held.phases = phases
        attempt: SyncAttempt[Any, Any] = SyncAttempt(held, self._worker_id, phases)
        if not held.plan.onion.all:
            return await self._in_thread(lambda: self._thread_body(held, attempt, phases))
        outcomes: list[Outcome] = []

        async def innermost() -> Any:
            outcome = await self._in_thread(lambda: self._thread_body(held, attempt, phases))
            outcomes.append(outcome)
            if isinstance(outcome, Raised):
                raise outcome.error
            return outcome.value if isinstance(outcome, Returned) else None

        value = await held.plan.onion.call(attempt, innermost)
        settled = outcomes and isinstance(outcomes[-1], SettledInThread)
        return outcomes[-1] if settled else Returned(value)

    def _thread_body(self, held: Held, attempt: BaseAttempt[Any, Any], phases: SyncPhases[Any]) -> Outcome:
        """In the thread: the handler, and the end of its transaction if it left one open."""
        try:
            result = refuse_awaitable(held.plan.function(attempt))
            if phases.failure is not None:
                raise phases.failure
            if phases.transaction is None:
                return Returned(result)
            self._complete_in_thread(held, phases, result)
        except BaseException as error:
            phases.close(error)
            return Raised(error, SERIALIZATION_ERROR if isinstance(error, _BadResult) else None)
        return SettledInThread()

    def _complete_in_thread(self, held: Held, phases: SyncPhases[Any], result: Any) -> None:
        client, tx = phases.client, phases.transaction
        assert tx is not None
        try:
            settlement = completion(client.engine, held.row, result, token=held.token, worker=self._worker_id)
        except QueuertError as error:
            raise _BadResult(str(error)) from error
        settled = run(client._provider, tx.connection, settle(client.engine, tx.hooks, [(held.row, settlement)]))
        if not settled.held[0]:
            raise OwnershipLost(held.row.id, "taken_by_another_worker")
        phases.close(None)

    async def _in_thread(self, body: Callable[[], Outcome]) -> Outcome:
        """A daemon thread per call: one that never ends must keep neither a pool nor the process from ending."""
        finished: asyncio.Future[Outcome] = self._loop.create_future()
        copied = contextvars.copy_context()

        def deliver(outcome: Outcome) -> None:
            if not finished.done():
                finished.set_result(outcome)

        def work() -> None:
            outcome = copied.run(body)
            try:
                self._loop.call_soon_threadsafe(deliver, outcome)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        threading.Thread(target=work, name="queuert-handler", daemon=True).start()
        return await finished


class _BadResult(QueuertError):
    """What the handler returned cannot be stored."""


def refuse_awaitable(value: Any) -> Any:
    """A handler that returns a coroutine has forgotten an await; storing it would hide that."""
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"the handler returned {type(value).__name__} instead of a result: is an `await` missing?")
    return value
