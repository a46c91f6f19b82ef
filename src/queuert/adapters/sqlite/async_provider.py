"""The async provider: one connection that writes, in a thread of its own, and a few that read.

Tasks take turns on the writing connection by a lock of this process, in the order of their coming, before they meet
the lock of the database file, where other processes compete. Between statements the connection rests: that is when
the user's code may use it, from the event loop's thread.

Cancellation. Waiting for the lock ends at once. A BEGIN or a single write that is under way in the thread is left to
itself: it is undone (the BEGIN) and the lock passed on when it comes back. Inside a transaction a statement is waited
for, since the user's own clean-up may use the connection next. COMMIT and ROLLBACK always run to their end.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from queuert.adapters.sqlite import session
from queuert.adapters.sqlite.connecting import Database
from queuert.adapters.sqlite.joining import Joining
from queuert.adapters.sqlite.locking import WriteLock
from queuert.adapters.sqlite.threads import Seat, Threads, finish
from queuert.errors import ClientClosed, TransactionMisused
from queuert.ports.provider import AsyncProvider
from queuert.sql.statement import Statement

READERS = 4


class AsyncSqliteProvider:
    """`sqlite3` for an event loop, which is never blocked, except by work on connections that the user joined."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._path = database.path
        self._writer = Threads("queuert-sqlite-writer", 1, database.connect)
        self._readers = Threads("queuert-sqlite-reader", READERS, lambda: database.connect(read_only=True))
        self._lock = WriteLock(database.busy_timeout)
        self._joining = Joining(database)
        self._own: sqlite3.Connection | None = None
        """The writing connection, while a transaction is open on it."""
        self._closed = False

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[sqlite3.Connection, None]:
        self._check_open()
        await self._lock.acquire()
        connection = self._own = await self._holding_lock(self._begin, undo=_roll_back)
        try:
            yield connection
        except BaseException as error:
            session.note_if_gone(error, await self._last(_roll_back))
            raise
        else:
            await self._last(self._commit)

    @asynccontextmanager
    async def savepoint(self, connection: sqlite3.Connection) -> AsyncGenerator[None, None]:
        self._check_open()
        if connection is not self._own:
            with self._joining.savepoint(connection):
                yield
            return
        await self._inside(lambda _: session.save(connection, self._path))
        try:
            yield
        except BaseException as error:
            intact = await self._inside(lambda _: session.roll_back_to(connection))
            session.note_if_gone(error, intact)
            raise
        else:
            await self._inside(lambda _: session.release(connection, self._path))

    async def execute(self, connection: sqlite3.Connection | None, command: Statement) -> Any:
        self._check_open()
        if connection is None:
            return await self._execute_alone(command)
        if connection is not self._own:
            return self._joining.execute(connection, command)

        def run(_: Seat) -> Any:
            session.require_open(connection)
            return session.execute(connection, command, self._path)

        return await self._inside(run)

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

    async def _execute_alone(self, command: Statement) -> Any:
        def run(seat: Seat) -> Any:
            return session.execute(seat.take(), command, self._path)

        if not command.writes:
            return await self._readers.submit(run).future
        await self._lock.acquire()
        rows = await self._holding_lock(run, undo=None)
        self._lock.release()
        return rows

    async def _holding_lock(self, task: Callable[[Seat], Any], undo: Callable[[Seat], Any] | None) -> Any:
        """Do something in the writer's thread; if that fails or is given up, the lock is passed on."""
        try:
            work = self._writer.submit(task)
        except BaseException:
            self._lock.release()
            raise
        try:
            return await work.future
        except asyncio.CancelledError:
            # The thread works in order, so what undoes it comes after it.
            last = work if undo is None else self._writer.submit(undo)
            if last.finished:
                self._lock.release()
            else:
                last.on_finish = self._lock.release
            raise
        except BaseException:
            self._lock.release()
            raise

    async def _inside(self, task: Callable[[Seat], Any]) -> Any:
        """Do something in the open transaction. Nobody else touches the connection until it is done."""
        return await finish(self._writer.submit(task))

    async def _last(self, task: Callable[[Seat], Any]) -> Any:
        """Do what ends the transaction, and let the next one in."""
        self._own = None
        try:
            return await finish(self._writer.submit(task))
        finally:
            self._lock.release()

    def _begin(self, seat: Seat) -> sqlite3.Connection:
        connection = seat.take()
        session.begin(connection, self._path)
        return connection

    def _commit(self, seat: Seat) -> None:
        try:
            session.commit(seat.take(), self._path)
        except TransactionMisused:
            seat.leave()  # whatever was done to it, the next one is as good as new
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLite provider")


def _roll_back(seat: Seat) -> bool:
    intact = seat.connection is not None and session.roll_back(seat.connection)
    if not intact:
        seat.leave()
    return intact


if TYPE_CHECKING:
    _: type[AsyncProvider[sqlite3.Connection]] = AsyncSqliteProvider
