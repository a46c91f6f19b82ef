"""Providers: the few driver calls that everything else is built on, and the runners that drive
programs over them.

A provider is what a user implements to bring another driver. It knows connections and commands, but
no jobs. A connection given by the user is used as it is: never committed, rolled back or closed by
us.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from queuert.base.blocking import Awaited, run_blocking
from queuert.errors import StorageUnavailable
from queuert.ports.program import Atomic, Pause, Program

Conn = TypeVar("Conn")
Conn_co = TypeVar("Conn_co", covariant=True)
Conn_contra = TypeVar("Conn_contra", contravariant=True)
T = TypeVar("T")


class SyncBlock(AbstractContextManager[Conn_co, None], Protocol[Conn_co]):
    """The block of a transaction. It yields the connection."""

    @property
    def answer(self) -> Any:
        """The answer to the block's first command, once the transaction is open."""
        ...


class AsyncBlock(AbstractAsyncContextManager[Conn_co, None], Protocol[Conn_co]):
    """`SyncBlock`, awaited."""

    @property
    def answer(self) -> Any: ...


class CommittingWith(Protocol):
    """Optional part of a transaction's block: a last command in one message with COMMIT."""

    async def commit_with(self, command: Any) -> bool:
        """Run a command and commit. Its answer is not read, so it must fail unless it is to be
        committed. The end of the block then does nothing more.

        False: the command has failed, and is undone. Or this is not possible. The transaction is
        open, with all that was written in it before. An error of COMMIT itself is raised as by the
        end of the block.

        A coroutine also in the block of a sync provider, where it never suspends.
        """
        ...


class SyncProvider(Protocol[Conn]):
    """The driver calls, blocking."""

    def transaction(self, first: Any = None) -> SyncBlock[Conn]:
        """Open a transaction on a connection of our own; commit at the end of the block, roll back
        on error.

        `first` is a command that the transaction begins with. Only the number of rows in its answer
        is used, so a driver may send it in the same message as BEGIN. If it fails, the transaction
        has not begun.

        A transaction with a `first` is guarded: if code inside the block has ended or broken the
        transaction, then the end of the block raises `TransactionMisused`, and commits nothing.
        That includes code that has ended it and begun another one. `queuert.ports.beginning` does
        this for providers whose driver has no better way.
        """
        ...

    def savepoint(self, connection: Conn) -> AbstractContextManager[None, None]:
        """A savepoint in the open transaction; released at the end of the block, rolled back on
        error.
        """
        ...

    def execute(self, connection: Conn | None, command: Any) -> Any:
        """Carry out one command of this adapter.

        None: on a connection of our own, committed at once.
        """
        ...

    def check(self, connection: Conn) -> None:
        """Raise if the caller's connection cannot be joined (wrong type, closed, wrong thread, no
        transaction).
        """
        ...

    def in_transaction(self, connection: Conn) -> bool:
        """Whether a transaction is open on the connection, without I/O."""
        ...

    def close(self) -> None:
        """Release what the provider opened itself. A second call does nothing."""
        ...


class AsyncProvider(Protocol[Conn]):
    """The driver calls, awaited.

    The same contract as `SyncProvider`, and the event loop is never blocked.
    """

    def transaction(self, first: Any = None) -> AsyncBlock[Conn]:
        """See `SyncProvider.transaction`."""
        ...

    def savepoint(self, connection: Conn) -> AbstractAsyncContextManager[None, None]:
        """See `SyncProvider.savepoint`."""
        ...

    async def execute(self, connection: Conn | None, command: Any) -> Any:
        """See `SyncProvider.execute`."""
        ...

    def check(self, connection: Conn) -> None:
        """See `SyncProvider.check`."""
        ...

    def in_transaction(self, connection: Conn) -> bool:
        """See `SyncProvider.in_transaction`."""
        ...

    async def close(self) -> None:
        """See `SyncProvider.close`."""
        ...


class TimeLimit(NamedTuple):
    """How long a command of the worker's own may take."""

    seconds: float
    urgent: bool = False
    """It is short and must not wait for other commands: it renews leases, or moves the horizon."""


class Upkeep(Protocol):
    """Optional part of an async provider, for the statements of workers.

    A database may hang without closing its connections. Then everything that waits for it would
    wait for ever, and the worker too. Without this part, a worker stops waiting at the limit, and
    the connection is left to the provider.
    """

    async def execute_within(self, limit: TimeLimit, command: Any) -> Any:
        """Like `execute(None, command)`, within limited time.

        Waiting for other users of the provider does not count. At the limit, close the connection
        without waiting for the database, and raise `StorageUnavailable`. The command may have taken
        effect, or may still do so.
        """
        ...

    async def reserve(self, statement_timeout: float) -> None:
        """A worker begins. From now on `execute_within` must find a connection for urgent commands
        at any time, whatever transactions are open.

        If the provider opens connections for `execute_within` alone, the server should end their
        statements after `statement_timeout` seconds.
        """
        ...

    async def unreserve(self) -> None:
        """A worker has ended."""
        ...

    def room(self) -> tuple[int, int] | None:
        """How many transactions can be open at once while a worker runs, and how many connections
        are set aside for it. None: this is not limited.
        """
        ...


class AfterCommitWork(Protocol):
    """What waits for the end of a transaction that the caller opened and ends without us."""

    def checkpoint(self) -> Callable[[], None]:
        """Remember the state as it is, at the beginning of a savepoint; the function returned puts
        it back, and calls the user's callbacks for the rollback. Call it after the rollback.
        """
        ...

    def flush(self) -> Awaitable[None] | None:
        """Called after the root transaction has committed.

        For an async client this only starts the work; the caller need not await the result. Never
        raises.
        """
        ...

    def rolled_back(self) -> None:
        """Called after the transaction, or the block that this work belongs to, was rolled back.

        For an async client this only starts the user's callbacks. Not called if it is not known
        whether a COMMIT took effect.
        """
        ...


W = TypeVar("W", bound=AfterCommitWork)


class Enlisting(Protocol[Conn_contra]):
    """Optional part of a provider whose connections report the end of their transaction.

    With it, `client.start(connection, …)` accepts the connection itself as the transaction that is
    open on it. The caller need not wrap it in `after_commit`.
    """

    def enlist(self, connection: Conn_contra, operation: str, make: Callable[[], W]) -> W:
        """The work that waits for the commit of the transaction now open on the connection; no I/O.

        Returns the work that this transaction already has, or else calls `make`. The provider
        flushes the work once, after the root transaction has committed. Work that was added inside
        a savepoint is dropped if the savepoint is rolled back, and all of it if the transaction is:
        the provider calls the function of `checkpoint` for the one, `rolled_back` for the other.
        The next transaction gets new work. Raises `TransactionRequired` (with this `operation` of
        the client) if no transaction is open, and `TransactionMisused` if the connection cannot be
        used for another reason.
        """
        ...


class Threaded(Protocol):
    """Optional part of a sync provider whose connections belong to threads and must be closed
    there.
    """

    def in_thread(self) -> AbstractContextManager[None, None]:
        """Wraps each plain `def` handler, in the thread that is started for it and ends with it."""
        ...


class Abandoning(Protocol[Conn_contra]):
    """Optional part of a provider, sync or async: a handler that does not end when its time is over
    can be separated from its transaction. So can one that waits for a database that hangs.
    """

    def abandon(self, connection: Conn_contra) -> bool:
        """End the transaction of a connection of ours by force; called from any thread, without
        waiting.

        A statement that is running fails, and so does everything that is tried on the connection
        later: nothing is committed any more. Only a COMMIT that is under way may have taken effect.
        The end of the transaction's block gives the connection back as usual, and it is not used
        again. A second call does nothing. False: this is not possible.
        """
        ...


def run(provider: SyncProvider[Conn], connection: Conn | None, program: Program[T]) -> T:
    """`run_async`, blocking."""
    return run_blocking(run_async(BlockingProvider(provider), connection, program, sleep_blocking))


async def run_async(
    provider: AsyncProvider[Conn],
    connection: Conn | None,
    program: Program[T],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    limit: TimeLimit | None = None,
) -> T:
    """Drive a program to its end.

    The error of a command is raised inside the program, at its `yield`. With a limit, each command
    that runs alone has that limit.
    """
    try:
        command = next(program)
        while True:
            try:
                if isinstance(command, Pause):
                    result: Any = None
                    await sleep(command.seconds)
                elif not isinstance(command, Atomic):
                    if limit is None:
                        result = await provider.execute(connection, command)
                    else:
                        result = await _execute_within(provider, limit, command)
                elif connection is None:
                    async with provider.transaction() as own:
                        result = await run_async(provider, own, command.program, sleep)
                else:
                    async with provider.savepoint(connection):
                        result = await run_async(provider, connection, command.program, sleep)
            except BaseException as error:
                command = program.throw(error)
            else:
                command = program.send(result)
    except StopIteration as done:
        value: T = done.value
        return value


async def _execute_within(provider: AsyncProvider[Any], limit: TimeLimit, command: Any) -> Any:
    if hasattr(provider, "execute_within"):
        return await cast("Upkeep", provider).execute_within(limit, command)
    try:
        async with asyncio.timeout(limit.seconds):
            return await provider.execute(None, command)
    except TimeoutError as error:
        raise StorageUnavailable(f"the database did not answer within {limit.seconds:g} s") from error


async def sleep_blocking(seconds: float) -> None:
    """`asyncio.sleep` for a thread."""
    time.sleep(seconds)  # noqa: ASYNC251  # only ever run by `run_blocking`


class BlockingProvider(Generic[Conn]):
    """A sync provider as an async one whose calls never suspend: see `queuert.base.blocking`."""

    def __init__(self, provider: SyncProvider[Conn]) -> None:
        self._provider = provider

    def transaction(self, first: Any = None) -> AsyncBlock[Conn]:
        return _AwaitedBlock(self._provider.transaction() if first is None else self._provider.transaction(first))

    def savepoint(self, connection: Conn) -> AbstractAsyncContextManager[None, None]:
        return Awaited(self._provider.savepoint(connection))

    async def execute(self, connection: Conn | None, command: Any) -> Any:
        return self._provider.execute(connection, command)

    def check(self, connection: Conn) -> None:
        self._provider.check(connection)

    def in_transaction(self, connection: Conn) -> bool:
        return self._provider.in_transaction(connection)

    async def close(self) -> None:
        self._provider.close()


class _AwaitedBlock(Awaited[Conn_co]):
    def __init__(self, block: SyncBlock[Conn_co]) -> None:
        super().__init__(block)
        self._begun = block

    @property
    def answer(self) -> Any:
        return self._begun.answer

    async def commit_with(self, command: Any) -> bool:
        return hasattr(self._begun, "commit_with") and await cast("CommittingWith", self._begun).commit_with(command)
