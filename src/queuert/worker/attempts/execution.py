"""Running one handler: in its own task, or, for a plain `def`, in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from queuert.base.blocking import run_blocking
from queuert.client.client import Client
from queuert.engine.current import current_job
from queuert.jobs.job import Job
from queuert.worker.attempts.call_in_thread import CallInThread, Confirm
from queuert.worker.attempts.client_for_threads import client_for_threads
from queuert.worker.attempts.ending import checked, end_attempt
from queuert.worker.attempts.outcome import Late, Outcome, Raised, Returned
from queuert.worker.attempts.phases import PhasesInTask, PhasesInThread
from queuert.worker.attempts.verdict import Verdicts
from queuert.worker.base.failure import SERIALIZATION_ERROR
from queuert.worker.handlers.attempt import Attempt, SyncAttempt
from queuert.worker.handlers.claim import Claim
from queuert.worker.handlers.listener import AttemptListener


class Execution:
    """Calls handlers. It never raises: whatever happens becomes an outcome."""

    def __init__(self, client: Client[Any], verdicts: Verdicts, listener: AttemptListener) -> None:
        self._client = client
        self._sync_client = client_for_threads(client)
        self._verdicts = verdicts
        self._listener = listener
        self._worker_id = verdicts.worker_id
        self._loop = asyncio.get_running_loop()
        self._beginning: list[Claim] = []
        """Those whose handlers were called in this turn of the loop."""
        # Some drivers have something to do where a thread begins and ends (see
        # `queuert.ports.provider.Threaded`).
        self._around_thread: Callable[[], AbstractContextManager[None, None]] = getattr(
            client.sessions.storage.sync_provider, "in_thread", nullcontext
        )

    async def run(self, claim: Claim) -> Outcome:
        """The body of the attempt's task.

        Everything that is raised is caught: it can only come from the handler's own task.
        """
        if claim.start_by is not None and time.monotonic() >= claim.start_by:
            return Late()
        if self._listener.listens:
            self._listener.started(claim)
        current_job.set(claim.row)  # never reset: the task's context ends with it
        plan = claim.plan
        try:
            claim.job = plan.job_type.decode_input(claim.row.input, claim.claimed.blockers)
        except Exception as error:
            return Raised(error, SERIALIZATION_ERROR)
        try:
            if plan.is_async:
                attempt: Attempt[Any, Any] = Attempt(claim, self._worker_id, self._client, PhasesInTask)
                if plan.middleware.all:
                    return Returned(await plan.middleware.call(attempt, lambda: self._innermost(claim, attempt)))
                self._begins(claim)
                return Returned(refuse_awaitable(await plan.function(attempt)))
            return await self._call_in_thread(claim)
        except BaseException as error:
            return Raised(error)

    async def _innermost(self, claim: Claim, attempt: Attempt[Any, Any]) -> Any:
        self._begins(claim)
        return refuse_awaitable(await claim.plan.function(attempt))

    def _begins(self, claim: Claim) -> None:
        """One callback, in the next turn of the loop, marks all handlers that begin in this turn.
        Those that still run then have awaited something that was not ready.
        """
        if not self._beginning:
            self._loop.call_soon(self._mark_suspended)
        self._beginning.append(claim)

    def _mark_suspended(self) -> None:
        for claim in self._beginning:
            claim.suspended = True
        self._beginning.clear()

    async def _call_in_thread(self, claim: Claim) -> Outcome:
        attempt: SyncAttempt[Any, Any] = SyncAttempt(claim, self._worker_id, self._sync_client, PhasesInThread)

        async def run_body(confirm: Confirm) -> Outcome:
            return await self._in_thread(claim, lambda: self._thread_body(claim, attempt, confirm))

        if not claim.plan.middleware.all:
            return await run_body(lambda result: result)
        call = CallInThread(run_body, self._loop)
        try:
            value = await claim.plan.middleware.call(attempt, call.run)
        except BaseException as error:
            await call.decide(Raised(error))
            raise
        return await call.decide(Returned(value))

    def _thread_body(self, claim: Claim, attempt: SyncAttempt[Any, Any], confirm: Confirm) -> Outcome:
        """In the thread: the handler, and the end of what it left open."""
        outcome: Outcome
        try:
            outcome = Returned(refuse_awaitable(claim.plan.function(attempt)))
        except BaseException as error:
            outcome = Raised(error)
        if self._sync_client is None:
            return outcome  # then there was nothing to open
        sessions, thread = self._sync_client.sessions, threading.get_ident()
        outcome = checked(claim, outcome, left_open=sessions.blocks.has_left_open(thread))
        transaction = None if claim.phases is None else claim.phases.hand_over()
        if transaction is not None and isinstance(outcome, Returned):
            try:
                outcome = Returned(confirm(outcome.value))
            except BaseException as error:
                outcome = Raised(error)
        return run_blocking(end_attempt(claim, outcome, transaction, sessions, thread, self._verdicts))

    async def _in_thread(self, claim: Claim, body: Callable[[], Outcome]) -> Outcome:
        """A daemon thread per call: a thread that never ends must block neither a pool nor the end
        of the process.
        """
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
            claim.in_thread = False
            try:
                self._loop.call_soon_threadsafe(deliver, outcome)
            except RuntimeError:
                return  # the loop is closed, and no task waits any more

        claim.in_thread = True
        threading.Thread(target=work, name="queuert-handler", daemon=True).start()
        return await finished

    def _inside_thread(self, body: Callable[[], Outcome]) -> Outcome:
        with self._around_thread():
            return body()


def refuse_awaitable(value: Any) -> Any:
    """A handler that returns a coroutine has forgotten an await; storing it would hide that."""
    # `inspect` is slow, and most handlers return None or a job.
    if value is not None and not issubclass(type(value), Job) and inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError(f"the handler returned {type(value).__name__} instead of a result: is an `await` missing?")
    return value
