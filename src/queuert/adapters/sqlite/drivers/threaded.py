"""The async provider: `sqlite3` in threads, one that writes and a few that read.

Tasks that write first wait for a fair lock of this process. Then they compete with other processes
for the lock of the file. Between statements the connection is idle: then user code may use it, in
the thread of the event loop.

Cancellation. Waiting for the lock ends at once. A BEGIN, or a write outside a transaction, that is
under way in the thread is left alone. It is undone unless it has reached its COMMIT, and the lock
is released after it. Inside a transaction a statement is waited for, since the user's own clean-up
may use the connection next. COMMIT and ROLLBACK always run to their end.
"""

from __future__ import annotations

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from queuert.adapters.fair_lock import FairLock
from queuert.adapters.sqlite.connections import abandoning, session
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.own import OwnConnection
from queuert.adapters.sqlite.connections.threads import Call, Threads, finish
from queuert.adapters.sqlite.drivers.base import BaseProvider
from queuert.errors import ClientClosed, StorageUnavailable, TransactionMisused
from queuert.ports.provider import AsyncProvider, TimeLimit, Upkeep

Conn = TypeVar("Conn")
T = TypeVar("T")

READERS = 4


class BaseAsyncProvider(BaseProvider, ABC, Generic[Conn]):
    """The blocks of transactions and savepoints, and commands outside of them.

    It may serve one event loop after another, but not two at once.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._writer = Threads("queuert-sqlite-writer", 1, lambda: OwnConnection(database))
        self._readers = Threads("queuert-sqlite-reader", READERS, lambda: OwnConnection(database, read_only=True))
        self.lock = FairLock(database.busy_timeout, database.path)
        """Held by the task that writes. SQLAlchemy's provider takes it too."""
        self._own: Conn | None = None
        """Our connection that a transaction is open on."""

    @abstractmethod
    async def begin(self, first: Command | None) -> tuple[Conn, Any]:
        """The connection with a transaction open on it, and the answer to the `first` command."""

    @abstractmethod
    async def end(self, error: BaseException | None) -> None:
        """Commit, or roll back if there is an error."""

    @abstractmethod
    async def in_thread(self, connection: Conn, function: Callable[[sqlite3.Connection], T]) -> T:
        """Call a function with the `sqlite3` connection, in the thread that it belongs to."""

    def transaction(self, first: Command | None = None) -> _Transaction[Conn]:
        return _Transaction(self, first)

    def savepoint(self, connection: Conn) -> _Savepoint[Conn]:
        return _Savepoint(self, connection)

    async def execute(self, connection: Conn | None, command: Command) -> Any:
        self._check_open()
        if connection is not None:
            own = connection is self._own
            return await self.in_thread(connection, lambda raw: self._run(raw, command, own=own))
        if not command.writes:
            return await self._readers.submit(lambda own: own.run_alone(command)).result
        await self.lock.acquire_async()
        answer = await self._with_lock(lambda own: own.run_alone(command))
        self.lock.release()
        return answer

    async def execute_within(self, limit: TimeLimit, command: Command) -> Any:
        """Waiting for other writers does not count: the busy timeout limits that."""
        self._check_open()
        if not command.writes:
            call = self._readers.submit(lambda own: own.run_alone(command))
            try:
                async with asyncio.timeout(limit.seconds):
                    return await call.result
            except TimeoutError as error:
                call.interrupt()
                raise self._silent(limit) from error
        await self.lock.acquire_async()
        answer = await self._with_lock(lambda own: own.run_alone(command), limit)
        self.lock.release()
        return answer

    async def reserve(self, statement_timeout: float) -> None:
        """There is one writer at a time: renewals take turns with all other writes."""

    async def unreserve(self) -> None:
        """Nothing was set aside."""

    def room(self) -> tuple[int, int] | None:
        return None

    def _silent(self, limit: TimeLimit) -> StorageUnavailable:
        return StorageUnavailable(
            f"{self.database.path} did not answer within {limit.seconds:g} s, so the statement was interrupted"
        )

    async def enter_savepoint(self, connection: Conn) -> session.Savepoint:
        self._check_open()
        own = connection is self._own

        def enter(raw: sqlite3.Connection) -> session.Savepoint:
            savepoint = self._savepoint(raw, own=own)
            savepoint.__enter__()
            return savepoint

        return await self.in_thread(connection, enter)

    async def close(self) -> None:
        """Calls under way in the threads run to their end. An open transaction is rolled back."""
        if self._closed:
            return
        self._closed = True
        self._joined.close()
        await self._writer.close()
        await self._readers.close()

    async def _with_lock(self, function: Callable[[OwnConnection], T], limit: TimeLimit | None = None) -> T:
        """Call a function in the writer's thread.

        If it fails or is given up, the lock is released.
        """
        call: Call[T] | None = None
        try:
            call = self._writer.submit(function)
            if limit is None:
                return await call.result
            async with asyncio.timeout(limit.seconds):
                return await call.result
        except (asyncio.CancelledError, TimeoutError) as error:
            if limit is not None and call is not None:
                call.interrupt()
            self._release_after_undo()
            if limit is not None and isinstance(error, TimeoutError):
                raise self._silent(limit) from error
            raise
        except BaseException:
            self.lock.release()
            raise

    def _release_after_undo(self) -> None:
        """The thread runs calls in order, so this runs after the call that was given up."""
        try:
            undo = self._writer.submit(OwnConnection.undo)
        except ClientClosed:
            self.lock.release()
        else:
            self.lock.disown()
            undo.done.add_done_callback(lambda _: self.lock.release())


class AsyncSqliteProvider(BaseAsyncProvider[sqlite3.Connection]):
    """`sqlite3` for an event loop.

    Only work on connections that the user joined can block the loop.
    """

    async def begin(self, first: Command | None) -> tuple[sqlite3.Connection, Any]:
        self._check_open()
        await self.lock.acquire_async()
        connection, answer = await self._with_lock(lambda own: own.begin(first))
        self._own = connection
        return connection, answer

    async def end(self, error: BaseException | None) -> None:
        self._own = None
        try:
            await finish(self._writer.submit(lambda own: own.end(error)))
        finally:
            self.lock.release()

    def abandon(self, connection: sqlite3.Connection) -> bool:
        return abandoning.abandon(connection)

    async def in_thread(self, connection: sqlite3.Connection, function: Callable[[sqlite3.Connection], T]) -> T:
        if connection is not self._own:
            return function(connection)
        return await finish(self._writer.submit(lambda _: function(connection)))


class _Transaction(Generic[Conn]):
    answer: Any = None

    def __init__(self, provider: BaseAsyncProvider[Conn], first: Command | None) -> None:
        self._provider = provider
        self._first = first

    async def __aenter__(self) -> Conn:
        connection, self.answer = await self._provider.begin(self._first)
        return connection

    async def __aexit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        await self._provider.end(error)


class _Savepoint(Generic[Conn]):
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: BaseAsyncProvider[Conn], connection: Conn) -> None:
        self._provider = provider
        self._connection = connection

    async def __aenter__(self) -> None:
        self._savepoint = await self._provider.enter_savepoint(self._connection)

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        def leave(_: sqlite3.Connection) -> None:
            self._savepoint.__exit__(kind, error, traceback)

        try:
            await self._provider.in_thread(self._connection, leave)
        except TransactionMisused:
            if error is None:
                raise
            session.note_if_gone(error, intact=False)


if TYPE_CHECKING:
    _: type[AsyncProvider[sqlite3.Connection]] = AsyncSqliteProvider
    __: type[Upkeep] = AsyncSqliteProvider
