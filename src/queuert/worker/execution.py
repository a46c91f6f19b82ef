"""Running one handler: in its own task, or, for a plain `def`, in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.current import current_job
from queuert.errors import OwnershipLost, TransactionMisused
from queuert.jobs.job import Job
from queuert.operations.settle import completion, settle
from queuert.ports.provider import run
from queuert.worker.attempt import Attempt, BaseAttempt, SyncAttempt
from queuert.worker.call_in_thread import CallInThread, Confirm
from queuert.worker.failure import SERIALIZATION_ERROR
from queuert.worker.held import Held
from queuert.worker.outcome import LEFT_OPEN, Late, Outcome, Raised, Returned, SettledInThread
from queuert.worker.phases import SyncPhases


class Execution:
    """Calls handlers. It never raises: whatever happens becomes an outcome."""

    def __init__(self, client: Client[Any], sync_client: SyncClient[Any] | None, worker_id: str) -> None:
        self._client = client
        self._sync_client = sync_client
        self._worker_id = worker_id
        self._loop = asyncio.get_running_loop()
        # Some drivers have something to do where a thread begins and ends (see `queuert.ports.provider.Threaded`).
        self._around_thread: Callable[[], AbstractContextManager[None, None]] = getattr(
            client.state.sync_provider, "in_thread", nullcontext
        )

    async def run(self, held: Held) -> Outcome:
        """The body of the attempt's task. Only what a handler's own task raises is caught: that is all it can be."""
        if held.start_by is not None and time.monotonic() >= held.start_by:
            return Late()
        current_job.set(held.row)  # never reset: the task's context ends with it
        plan = held.plan
        try:
            held.job = plan.job_type.decode_input(held.row.input, held.claimed.blockers)
        except Exception as error:
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

        async def run_body(confirm: Confirm) -> Outcome:
            return await self._in_thread(lambda: self._thread_body(held, attempt, phases, confirm))

        if not held.plan.onion.all:
            return await run_body(lambda result: result)
        call = CallInThread(run_body, self._loop)
        try:
            value = await held.plan.onion.call(attempt, call.run)
        except BaseException as error:
            await call.decide(Raised(error))
            raise
        return await call.decide(Returned(value))

    def _thread_body(
        self, held: Held, attempt: BaseAttempt[Any, Any], phases: SyncPhases[Any], confirm: Confirm
    ) -> Outcome:
        """In the thread: the handler, and the end of its transaction if it left one open."""
        try:
            result = refuse_awaitable(held.plan.function(attempt))
            problem = phases.problem()
            if problem is not None:
                raise problem
            if phases.transaction is None:
                self._end_forgotten()
                return Returned(result)
            result = confirm(result)
            self._complete_in_thread(held, phases, result)
        except _BadResult as bad:
            phases.roll_back(bad)
            return Raised(bad.error, SERIALIZATION_ERROR)
        except BaseException as error:
            phases.roll_back(error)
            with suppress(TransactionMisused):
                self._end_forgotten()
            return Raised(error)
        return SettledInThread()

    def _end_forgotten(self) -> None:
        """In the thread: roll back a transaction of the client's own that the handler has never left, and say so."""
        client = self._sync_client
        forgotten = None if client is None else client._nesting.left_open_by(threading.get_ident())
        block = None if forgotten is None else forgotten.get()
        if block is not None:
            error = TransactionMisused(LEFT_OPEN)
            with suppress(Exception):
                block.__exit__(TransactionMisused, error, None)
            raise error

    def _complete_in_thread(self, held: Held, phases: SyncPhases[Any], result: Any) -> None:
        client, tx = phases.client, phases.transaction
        assert tx is not None
        try:
            settlement = completion(client.engine, held.row, result, token=held.token, worker=self._worker_id)
        except Exception as error:
            raise _BadResult(error) from error
        settled = run(client._provider, tx.connection, settle(client.engine, tx.hooks, [(held.row, settlement)]))
        if not settled.held[0]:
            raise OwnershipLost(held.row.id, "taken_by_another_worker")
        phases.commit()

    async def _in_thread(self, body: Callable[[], Outcome]) -> Outcome:
        """A daemon thread per call: one that never ends must keep neither a pool nor the process from ending."""
        finished: asyncio.Future[Outcome] = self._loop.create_future()
        copied = contextvars.copy_context()

        def deliver(outcome: Outcome) -> None:
            if not finished.done():
                finished.set_result(outcome)

        def work() -> None:
            try:
                outcome = copied.run(self._inside_thread, body)
            except BaseException as error:
                outcome = Raised(error)
            try:
                self._loop.call_soon_threadsafe(deliver, outcome)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        threading.Thread(target=work, name="queuert-handler", daemon=True).start()
        return await finished

    def _inside_thread(self, body: Callable[[], Outcome]) -> Outcome:
        with self._around_thread():
            return body()


class _BadResult(Exception):
    """What the handler returned cannot be stored."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def refuse_awaitable(value: Any) -> Any:
    """A handler that returns a coroutine has forgotten an await; storing it would hide that."""
    if _is_awaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"the handler returned {type(value).__name__} instead of a result: is an `await` missing?")
    return value


def _is_awaitable(value: object) -> bool:
    # inspect takes its time, and None or a job is what most handlers return.
    return value is not None and not isinstance(value, Job) and inspect.isawaitable(value)
