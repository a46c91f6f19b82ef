"""The async provider: one connection that writes, in a thread of its own, and a few that read.

Tasks take turns on the writing connection by a lock of this process, in the order of their coming, before they meet
the lock of the database file, where other processes compete. Between statements the connection rests: that is when
the user's code may use it, from the event loop's thread.

Cancellation. Waiting for the lock ends at once. A BEGIN or a write outside a transaction that is under way in the
thread is left to itself, undone unless it has reached its COMMIT, and the lock passed on when it comes back. Inside a
transaction a statement is waited for, since the user's own clean-up may use the connection next. COMMIT and ROLLBACK
always run to their end.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from queuert.adapters.sqlite import session
from queuert.adapters.sqlite.connecting import Database
from queuert.adapters.sqlite.joining import Joining
from queuert.adapters.sqlite.locking import WriteLock
from queuert.adapters.sqlite.threads import Seat, Threads, Work, finish
from queuert.adapters.sqlite.unit import Unit, run_alone, run_inside
from queuert.errors import ClientClosed
from queuert.ports.beginning import Begun
from queuert.ports.provider import AsyncBlock, AsyncProvider
from queuert.sql.statement import Statement

T = TypeVar("T")

READERS = 4


class AsyncSqliteProvider:
    """`sqlite3` for an event loop, which is never blocked, except by work on connections that the user joined.

    It may serve one loop after another, but not two at once.
    """

    def __init__(self, database: Database) -> None:
        self.database = database
        self._path = database.path
        self._writer = Threads("queuert-sqlite-writer", 1, database.connect)
        self._readers = Threads("queuert-sqlite-reader", READERS, lambda: database.connect(read_only=True))
        self.lock = WriteLock(database.busy_timeout)
        self._joining = Joining(database)
        self._own: sqlite3.Connection | None = None
        """The writing connection, while a transaction is open on it."""
        self._closed = False

    def transaction(self, first: Statement | Unit[Any] | None = None) -> AsyncBlock[sqlite3.Connection]:
        return _Transaction(self) if first is None else Begun(self, _Transaction(self), first)

    def savepoint(self, connection: sqlite3.Connection) -> _Savepoint:
        return _Savepoint(self, connection)

    async def execute(self, connection: sqlite3.Connection | None, command: Statement | Unit[Any]) -> Any:
        self._check_open()
        if connection is None:
            return await self._execute_alone(command)
        if connection is not self._own:
            return self._joining.execute(connection, command)

        def run(_: Seat) -> Any:
            session.require_open(connection)
            if isinstance(command, Unit):
                return run_inside(connection, command, self._path)
            return session.execute(connection, command, self._path)

        return await self.inside(run)

    def check(self, connection: sqlite3.Connection) -> None:
        self._check_open()
        self._joining.check(connection)

    def in_transaction(self, connection: sqlite3.Connection) -> bool:
        return session.is_open(connection)

    async def close(self) -> None:
        """What is under way in the threads runs to its end; a transaction that is still open is rolled back."""
        if self._closed:
            return
        self._closed = True
        self._joining.close()
        await self._writer.close()
        await self._readers.close()

    async def _execute_alone(self, command: Statement | Unit[Any]) -> Any:
        given_up = threading.Event()

        def run(seat: Seat) -> Any:
            if isinstance(command, Unit):
                return run_alone(seat.take(), command, self.database, given_up.is_set)
            return session.execute(seat.take(), command, self._path)

        if not command.writes:
            return await self._readers.submit(run).future
        await self.lock.acquire()
        try:
            rows = await self._holding_lock(run, undo=None)
        except asyncio.CancelledError:
            given_up.set()
            raise
        self.lock.release()
        return rows

    async def _holding_lock(self, task: Callable[[Seat], T], undo: Callable[[Seat], Any] | None) -> T:
        """Do something in the writer's thread; if that fails or is given up, the lock is passed on."""
        try:
            work = self._writer.submit(task)
        except BaseException:
            self.lock.release()
            raise
        try:
            return await work.future
        except asyncio.CancelledError:
            self._abandon(work, undo)
            raise
        except BaseException:
            self.lock.release()
            raise

    def _abandon(self, work: Work[Any], undo: Callable[[Seat], Any] | None) -> None:
        """Pass the lock on when the thread is done. It works in order, so what undoes a call comes after it."""
        if undo is not None and not self._closed:
            work = self._writer.submit(undo)
        if work.finished:
            self.lock.release()
        else:
            work.on_finish = self.lock.release

    async def inside(self, task: Callable[[Seat], T]) -> T:
        """Do something in the open transaction. Nobody else touches the connection until it is done."""
        return await finish(self._writer.submit(task))

    async def begin(self) -> sqlite3.Connection:
        self._check_open()
        await self.lock.acquire()
        self._own = await self._holding_lock(self._begin, undo=_roll_back)
        return self._own

    async def end(self, *, commit: bool) -> bool:
        """End the transaction, and let the next one in. False: it could not be rolled back."""
        self._own = None
        try:
            return await finish(self._writer.submit(self._commit if commit else _roll_back))
        finally:
            self.lock.release()

    def joined(self, connection: sqlite3.Connection) -> session.Savepoint | None:
        """How to set a savepoint on a connection that is not ours."""
        self._check_open()
        return None if connection is self._own else self._joining.savepoint(connection)

    def _begin(self, seat: Seat) -> sqlite3.Connection:
        connection = seat.take()
        session.begin(connection, self._path)
        return connection

    def _commit(self, seat: Seat) -> bool:
        try:
            self.database.commit(seat.held())
        except BaseException:
            seat.leave()  # whatever was done to it, the next one is as good as new
            raise
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLite provider")


class _Transaction:
    """A transaction on the writing connection."""

    answer: Any = None

    def __init__(self, provider: AsyncSqliteProvider) -> None:
        self._provider = provider

    async def __aenter__(self) -> sqlite3.Connection:
        return await self._provider.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        intact = await self._provider.end(commit=error is None)
        if error is not None:
            session.note_if_gone(error, intact=intact)


class _Savepoint:
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: AsyncSqliteProvider, connection: sqlite3.Connection) -> None:
        self._provider = provider
        self._connection = connection
        self._path = provider.database.path
        self._joined: session.Savepoint | None = None

    async def __aenter__(self) -> None:
        self._joined = self._provider.joined(self._connection)
        if self._joined is not None:
            self._joined.__enter__()
        else:
            await self._provider.inside(lambda _: session.save(self._connection, self._path))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._joined is not None:
            self._joined.__exit__(kind, error, traceback)
        elif error is None:
            await self._provider.inside(lambda _: session.release(self._connection, self._path))
        else:
            intact = await self._provider.inside(lambda _: session.roll_back_to(self._connection))
            session.note_if_gone(error, intact=intact)


def _roll_back(seat: Seat) -> bool:
    intact = seat.is_open and session.roll_back(seat.held())
    if not intact:
        seat.leave()
    return intact


if TYPE_CHECKING:
    _: type[AsyncProvider[sqlite3.Connection]] = AsyncSqliteProvider
