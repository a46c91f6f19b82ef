"""The two phases of an attempt: `prepare` and `complete`.

What the handler does before it first awaits something decides the mode: it opens `complete()`
(atomic), or `prepare(mode)` (that mode); otherwise the attempt is set up as staged, and `prepare()`
comes too late. A plain `def` handler never awaits, so the first of the two decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from typing import Any, Generic

from typing_extensions import TypeVar

from queuert.base.contexts import async_context, context
from queuert.base.transaction import Transaction
from queuert.engine.sessions import Sessions
from queuert.errors import PhaseError, PrepareAfterAutoSetup, TransactionMisused
from queuert.ports.tracer import Tracer
from queuert.worker.attempts.transaction import AttemptTransaction, TransactionInTask, TransactionInThread
from queuert.worker.handlers.attempt import BaseAttempt
from queuert.worker.handlers.claim import Claim, Mode, Phase

Conn = TypeVar("Conn", default=Any)

ENDED_INSIDE = "the transaction of this phase was ended by code inside its block: leave commit and rollback to queuert"

_NOTHING: nullcontext[None] = nullcontext()


class Phases(Generic[Conn]):
    """Which phase the attempt is in, which it has had, the first error inside one, and the open
    transaction.
    """

    _transaction_type: type[AttemptTransaction[Any]]

    def __init__(self, sessions: Sessions[Conn], claim: Claim, attempt: BaseAttempt[Any, Any]) -> None:
        self._sessions = sessions
        self._claim = claim
        self._attempt = attempt
        self._mode: Mode | None = None
        self._current: Phase | None = None
        self._had: set[Phase] = set()
        self._failure: BaseException | None = None
        self._transaction: AttemptTransaction[Conn] | None = None
        """Open from the phase that needs it until the handler has returned and the attempt is
        settled in it."""
        self._latest: AttemptTransaction[Conn] | None = None

    @async_context
    async def phase(self, phase: Phase, mode: Mode | None = None) -> AsyncIterator[Transaction[Conn]]:
        """The block of a phase.

        An error in it fails the attempt, even if the handler goes on after it.
        """
        with self._span(phase):
            self._begin(phase, mode)
            try:
                tx = await self._open()
                async with self._middleware(phase, tx):
                    try:
                        yield tx
                    except BaseException as error:
                        # Recorded here, before middleware swallows it or a failing rollback
                        # replaces it.
                        self._fail(error)
                        raise
                if self._failure is not None:
                    raise self._failure
                ended_inside = not self._sessions.in_transaction(tx)
                if ended_inside or mode == "staged":
                    await self._commit()
                if ended_inside:
                    raise TransactionMisused(ENDED_INSIDE)
            except BaseException as error:
                self._fail(error)
                # At once: a handler that goes on after an error must not keep the database waiting.
                await self._roll_back(error)
                raise
            finally:
                self._current = None

    def problem(self) -> BaseException | None:
        """What fails the attempt, now that the handler has ended, whatever it returned."""
        if self._failure is None and self._current is not None:
            return PhaseError(f"the handler returned inside {self._current}(), without leaving its block")
        return self._failure

    def hand_over(self) -> AttemptTransaction[Conn] | None:
        """The open transaction, no longer the handler's."""
        transaction, self._transaction = self._transaction, None
        return transaction

    async def take_away(self) -> bool:
        """Undo the open transaction without the handler, which has not ended in time.

        False if the driver cannot do that.
        """
        return self._transaction is None or await self._transaction.take_away()

    def cut_off(self) -> None:
        """Close the connection of the transaction at once, even while it is being ended. May be
        called in any thread."""
        if self._latest is not None:
            self._latest.cut_off()

    def _begin(self, phase: Phase, mode: Mode | None) -> None:
        if self._current is not None:
            raise PhaseError(f"{phase}() cannot be opened inside {self._current}()")
        if phase in self._had:
            raise PhaseError(f"{phase}() can be used once per attempt")
        if phase == "prepare":
            if mode not in ("atomic", "staged"):
                raise PhaseError(f"prepare() takes 'atomic' or 'staged', got {mode!r}")
            if "complete" in self._had or self._claim.suspended:
                raise PrepareAfterAutoSetup
            self._mode = mode
        elif self._mode is None:
            self._mode = "staged" if self._claim.suspended else "atomic"
        self._current = phase
        self._had.add(phase)

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error

    async def _open(self) -> Transaction[Conn]:
        if self._transaction is None:
            # If the claim ends with this transaction, it locks the job, and renewals skip the job.
            # If the handler goes on afterwards, the lease must be renewed, so the job is not
            # locked.
            lock = self._current == "complete" or self._mode == "atomic"
            self._transaction = self._latest = self._transaction_type(self._sessions, self._claim, lock=lock)
        return await self._transaction.open()

    async def _commit(self) -> None:
        transaction = self.hand_over()
        if transaction is not None:
            await self._to_the_end(transaction.commit())

    async def _roll_back(self, error: BaseException) -> None:
        transaction = self.hand_over()
        if transaction is not None:
            await self._to_the_end(transaction.roll_back(error))

    def _to_the_end(self, end: Awaitable[object]) -> Awaitable[object]:
        """What happens to the handler must not interrupt a commit or a rollback."""
        raise NotImplementedError

    def _middleware(self, phase: Phase, tx: Transaction[Conn]) -> AbstractAsyncContextManager[None]:
        middleware = self._claim.plan.middleware
        return middleware.phase(phase, self._attempt, tx) if middleware.wraps(phase) else _NOTHING

    def _span(self, phase: Phase) -> AbstractContextManager[None]:
        tracer = self._sessions.engine.tracer
        return _NOTHING if tracer is None else _traced(tracer, phase)


class PhasesInTask(Phases[Conn]):
    """For an `async def` handler."""

    _transaction_type = TransactionInTask

    def __init__(self, sessions: Sessions[Conn], claim: Claim, attempt: BaseAttempt[Any, Any]) -> None:
        super().__init__(sessions, claim, attempt)
        self._inside: set[asyncio.Task[Any] | None] = set()
        """The tasks that have used the open transaction. If they opened one of the client's own as
        well, they could wait for themselves."""

    async def _open(self) -> Transaction[Conn]:
        task = asyncio.current_task()
        if task not in self._inside:
            # Check this before waiting for the database: with a single writer, this task may hold
            # the write lock.
            self._sessions.blocks.enter(task)
            self._inside.add(task)
        tx = await super()._open()
        self._sessions.blocks.lend(tx)
        return tx

    def hand_over(self) -> AttemptTransaction[Conn] | None:
        while self._inside:
            self._sessions.blocks.leave(self._inside.pop())
        return super().hand_over()

    async def take_away(self) -> bool:
        transaction = self.hand_over()
        return transaction is None or await transaction.take_away()

    def _to_the_end(self, end: Awaitable[object]) -> Awaitable[object]:
        return asyncio.shield(end)


class PhasesInThread(Phases[Conn]):
    """For a plain `def` handler, in its thread. Nothing here suspends."""

    _transaction_type = TransactionInThread

    async def _open(self) -> Transaction[Conn]:
        tx = await super()._open()
        self._sessions.blocks.lend(tx)
        return tx

    def _to_the_end(self, end: Awaitable[object]) -> Awaitable[object]:
        return end

    @async_context
    async def _middleware(self, phase: Phase, tx: Transaction[Conn]) -> AsyncIterator[None]:
        """Middleware is async: a task on the worker's loop keeps its block open, while this thread
        goes on.
        """
        if not self._claim.plan.middleware.wraps(phase):
            yield
            return
        assert self._claim.task is not None
        entered: Future[None] = Future()
        leaving: Future[BaseException | None] = Future()
        block = super()._middleware(phase, tx)
        task = asyncio.run_coroutine_threadsafe(_keep_open(block, entered, leaving), self._claim.task.get_loop())
        entered.result()
        try:
            yield
        except BaseException as error:
            leaving.set_result(error)
            raised = task.result()
            if raised is not None and raised is not error:
                raise raised from error
            raise
        leaving.set_result(None)
        raised = task.result()
        if raised is not None:
            raise raised


async def _keep_open(
    block: AbstractAsyncContextManager[None], entered: Future[None], leaving: Future[BaseException | None]
) -> BaseException | None:
    """Keep a block open until a thread leaves it. What it raises is returned: it may be
    `SystemExit`, which would end the loop.
    """
    try:
        async with block:
            entered.set_result(None)
            error = await asyncio.wrap_future(leaving)
            if error is not None:
                raise error
    except BaseException as raised:
        if not entered.done():
            entered.set_exception(raised)
        return raised
    return None


@context
def _traced(tracer: Tracer, phase: Phase) -> Iterator[None]:
    span = tracer.start_phase(phase=phase)
    try:
        yield
    except BaseException as error:
        tracer.end_phase(span, error_type=type(error).__qualname__)
        raise
    tracer.end_phase(span, error_type=None)
