"""The two phases of an attempt, and the transactions behind them.

`Phases` is the state machine: which phase may follow which. `AsyncPhases` and `SyncPhases` open transactions by it.

What the handler does before it first awaits something decides the mode: it opens `complete()` (atomic), or
`prepare(mode)` (that mode); otherwise the attempt is set up as staged, and `prepare()` comes too late. A plain `def`
handler never awaits, so the first of the two decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Generic, Literal

from typing_extensions import TypeVar

from queuert.client.base import BaseClient
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.contexts import async_context, context
from queuert.errors import PhaseError, PrepareAfterAutoSetup, TransactionMisused
from queuert.ports.program import answered
from queuert.ports.provider import run
from queuert.ports.tracer import Tracer
from queuert.transaction import Transaction
from queuert.worker.attempt_transaction import AttemptTransaction, lost
from queuert.worker.held import Held

if TYPE_CHECKING:
    from queuert.worker.attempt import BaseAttempt

Conn = TypeVar("Conn", default=Any)
Mode = Literal["atomic", "staged"]
Phase = Literal["prepare", "complete"]


ENDED_INSIDE = "the transaction of this phase was ended by code inside its block: leave commit and rollback to queuert"
"""For a provider that does not say so itself when the block ends."""

_NO_SPAN: AbstractContextManager[None] = nullcontext()


@context
def _span(tracer: Tracer, phase: Phase) -> Iterator[None]:
    span = tracer.start_phase(phase=phase)
    try:
        yield
    except BaseException as error:
        tracer.end_phase(span, error_type=type(error).__qualname__)
        raise
    tracer.end_phase(span, error_type=None)


class Phases:
    """Which phase the attempt is in, which it has had, and the first error that was raised inside one."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.mode: Mode | None = None
        self.current: Phase | None = None
        self.done: set[Phase] = set()
        self.failure: BaseException | None = None

    def begin(self, phase: Phase, mode: Mode | None = None) -> None:
        if self.current is not None:
            raise PhaseError(f"{phase}() cannot be opened inside {self.current}()")
        if phase in self.done:
            raise PhaseError(f"{phase}() can be used once per attempt")
        if phase == "prepare":
            if mode not in ("atomic", "staged"):
                raise PhaseError(f"prepare() takes 'atomic' or 'staged', got {mode!r}")
            if "complete" in self.done or self.held.suspended:
                raise PrepareAfterAutoSetup
            self.mode = mode
        elif self.mode is None:
            self.mode = "staged" if self.held.suspended else "atomic"
        self.current = phase
        self.done.add(phase)

    @property
    def ends_here(self) -> bool:
        """Whether the claim ends with the transaction of the current phase. If so, the transaction locks it, and
        renewals pass it by. If the handler goes on after it, they must not."""
        return self.current == "complete" or self.mode == "atomic"

    def span(self, phase: Phase, client: BaseClient[Any] | None) -> AbstractContextManager[None]:
        """The phase as a tracer sees it."""
        tracer = None if client is None else client.engine.tracer
        return _NO_SPAN if tracer is None else _span(tracer, phase)

    def fail(self, error: BaseException) -> None:
        """An error inside a phase fails the attempt, also if the handler swallows it."""
        if self.failure is None:
            self.failure = error

    def end(self) -> None:
        self.current = None

    def problem(self) -> BaseException | None:
        """What fails the attempt, now that the handler has ended, whatever it returned."""
        if self.failure is None and self.current is not None:
            return PhaseError(f"the handler returned inside {self.current}(), whose block it has never left")
        return self.failure

    def left_open(self) -> AttemptTransaction[Any] | None:
        """The transaction that is open now that the handler has returned, and in which the job is to be settled."""
        return None


class AsyncPhases(Phases, Generic[Conn]):
    def __init__(self, client: Client[Conn], held: Held, attempt: BaseAttempt[Any, Any]) -> None:
        super().__init__(held)
        self._client = client
        self._attempt = attempt
        self._inside: set[asyncio.Task[Any] | None] = set()
        """The tasks that have used the open transaction: one of the client's own would make them wait for ever."""
        self.transaction: AttemptTransaction[Conn] | None = None
        """Open from the phase that needs it until the handler has returned and the attempt is settled in it."""

    def left_open(self) -> AttemptTransaction[Any] | None:
        return self._hand_over()

    @async_context
    async def prepare(self, mode: Mode) -> AsyncIterator[Transaction[Conn]]:
        with self.span("prepare", self._client):
            self.begin("prepare", mode)
            async with self._user_code("prepare") as tx:
                yield tx
            if mode == "staged":
                try:
                    await self._commit()
                except BaseException as error:
                    self.fail(error)
                    raise

    @async_context
    async def complete(self) -> AsyncIterator[Transaction[Conn]]:
        with self.span("complete", self._client):
            self.begin("complete")
            async with self._user_code("complete") as tx:
                yield tx

    @async_context
    async def _user_code(self, phase: Phase) -> AsyncIterator[Transaction[Conn]]:
        try:
            tx = await self._open()
            async with self.held.plan.onion.phase(phase, self._attempt, tx):
                try:
                    yield tx
                except BaseException as error:
                    # Recorded here, before middleware swallows it or a rollback fails in its own way.
                    self.fail(error)
                    raise
            if self.failure is not None:
                raise self.failure
            if not self._client._provider.in_transaction(tx.connection):
                await self._commit()
                raise TransactionMisused(ENDED_INSIDE)
        except BaseException as error:
            self.fail(error)
            await self._roll_back(error)
            raise
        finally:
            self.end()

    async def _open(self) -> Transaction[Conn]:
        task = asyncio.current_task()
        if task not in self._inside:
            # Before anything waits for the database: where there is one writer, it might be this very task.
            self._client._nesting.enter(task)
            self._inside.add(task)
        if self.transaction is None:
            self.transaction = AttemptTransaction(self._client, self.held, lock=self.ends_here)
        return await self.transaction.open()

    async def _commit(self) -> None:
        transaction = self._hand_over()
        if transaction is not None:
            # Shielded: a cancelled handler must not leave a commit half-way.
            await asyncio.shield(transaction.commit())

    async def _roll_back(self, error: BaseException) -> None:
        """At once: a handler that goes on after an error must not keep the database waiting."""
        transaction = self._hand_over()
        if transaction is not None:
            await asyncio.shield(transaction.roll_back(error))

    def _hand_over(self) -> AttemptTransaction[Conn] | None:
        """The transaction, no longer the handler's."""
        transaction, self.transaction = self.transaction, None
        while self._inside:
            self._client._nesting.leave(self._inside.pop())
        return transaction


class SyncPhases(Phases, Generic[Conn]):
    """The same in a handler's thread, over the sync provider that is paired with the async one."""

    def __init__(self, client: SyncClient[Conn] | None, held: Held, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(held)
        self._client = client
        self._loop = loop
        self._block: Any = None
        self.transaction: Transaction[Conn] | None = None

    @property
    def client(self) -> SyncClient[Conn]:
        if self._client is None:
            raise TransactionMisused(
                "a plain `def` handler cannot open transactions with this driver: it has no sync counterpart. "
                "Make the handler `async def`, or use a driver that has both"
            )
        return self._client

    @context
    def prepare(self, mode: Mode, attempt: BaseAttempt[Any, Any]) -> Iterator[Transaction[Conn]]:
        with self.span("prepare", self._client):
            self.begin("prepare", mode)
            with self._user_code("prepare", attempt) as tx:
                yield tx
            if mode == "staged":
                try:
                    self.commit()
                except BaseException as error:
                    self.fail(error)
                    raise

    @context
    def complete(self, attempt: BaseAttempt[Any, Any]) -> Iterator[Transaction[Conn]]:
        with self.span("complete", self._client):
            self.begin("complete")
            with self._user_code("complete", attempt) as tx:
                yield tx

    @context
    def _user_code(self, phase: Phase, attempt: BaseAttempt[Any, Any]) -> Iterator[Transaction[Conn]]:
        try:
            tx = self._open()
            with self._middleware(phase, attempt, tx):
                try:
                    yield tx
                except BaseException as error:
                    self.fail(error)
                    raise
            if not self.client._provider.in_transaction(tx.connection):
                self.commit()
                raise TransactionMisused(ENDED_INSIDE)
        except BaseException as error:
            self.fail(error)
            self.roll_back(error)
            raise
        finally:
            self.end()

    @context
    def _middleware(self, phase: Phase, attempt: BaseAttempt[Any, Any], tx: Transaction[Conn]) -> Iterator[None]:
        """Middleware is async: its block is held open by a task on the worker's loop, while this thread goes on."""
        onion = self.held.plan.onion
        if not onion.wraps(phase):
            yield
            return
        entered: Future[None] = Future()
        leaving: Future[BaseException | None] = Future()
        task = asyncio.run_coroutine_threadsafe(_hold(onion.phase(phase, attempt, tx), entered, leaving), self._loop)
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

    def _open(self) -> Transaction[Conn]:
        if self.transaction is None:
            client = self.client
            state, job_id = client.engine.state, self.held.row.id
            hold = state.hold(job_id, self.held.token, lock=self.ends_here)
            opened = client._provider.transaction(next(hold))
            block = client._begin(opened)
            tx = block.__enter__()
            self._block, self.transaction = block, tx
            if not answered(hold, opened.answer):
                (row,) = run(client._provider, tx.connection, state.get_jobs([job_id]))
                raise lost(row, self.held)
        return self.transaction

    def commit(self) -> None:
        block, self._block, self.transaction = self._block, None, None
        if block is not None:
            block.__exit__(None, None, None)

    def roll_back(self, error: BaseException) -> None:
        block, self._block, self.transaction = self._block, None, None
        if block is not None:
            # What else goes wrong here would only hide the error that led to it, which comes back out too.
            with suppress(BaseException):
                block.__exit__(type(error), error, error.__traceback__)


async def _hold(
    block: AbstractAsyncContextManager[None], entered: Future[None], leaving: Future[BaseException | None]
) -> BaseException | None:
    """Keep a block open until a thread says how it is to be left. What it raises is returned: it may be `SystemExit`,
    which would end the loop."""
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
