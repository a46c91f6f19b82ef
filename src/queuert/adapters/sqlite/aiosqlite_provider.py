"""aiosqlite: transactions on connections of its kind, ours or the caller's.

An aiosqlite connection has a thread of its own, and all work on it goes there: the event loop is never blocked, not
even by work on a connection that was joined. What stands outside of transactions is nobody's to see, and is left to
`AsyncSqliteProvider`, which has its threads for that; both take turns by one lock.

Cancellation. Waiting for the lock ends at once. What is under way in a connection's thread is waited for; a BEGIN too,
which takes no longer than the busy timeout.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from aiosqlite import Connection

from queuert.adapters.sqlite import session
from queuert.adapters.sqlite.async_provider import AsyncSqliteProvider
from queuert.adapters.sqlite.connecting import Database
from queuert.adapters.sqlite.joining import NO_TRANSACTION, Joining, not_a
from queuert.adapters.sqlite.unit import Unit, run_inside
from queuert.errors import ClientClosed, TransactionMisused
from queuert.ports.beginning import Begun
from queuert.ports.provider import AsyncBlock, AsyncProvider
from queuert.sql.statement import Statement

T = TypeVar("T")

ROWS_AT_ONCE = 64
"""What aiosqlite fetches at a time while somebody iterates; its own default."""


class AiosqliteProvider:
    """aiosqlite for an event loop. It may serve one loop after another, but not two at once."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._path = database.path
        self._alone = AsyncSqliteProvider(database)
        self._joining = Joining(database)
        self._own: Connection | None = None
        """The connection for transactions, opened when it is first needed and after it was lost."""
        self._closed = False

    def transaction(self, first: Statement | Unit[Any] | None = None) -> AsyncBlock[Connection]:
        return _Transaction(self) if first is None else Begun(self, _Transaction(self), first)

    def savepoint(self, connection: Connection) -> _Savepoint:
        return _Savepoint(self, connection)

    async def execute(self, connection: Connection | None, command: Statement | Unit[Any]) -> Any:
        self._check_open()
        if connection is None:
            return await self._alone.execute(None, command)
        if connection is self._own:
            return await call(connection, self._execute_inside, command)
        return await call(connection, self._execute_joined, command)

    def check(self, connection: Connection) -> None:
        """What can be said without I/O; which file it is, its thread finds out at the first statement."""
        self._check_open()
        if not isinstance(connection, Connection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise not_a("an aiosqlite.Connection", connection)
        if not self.in_transaction(connection):
            raise TransactionMisused(NO_TRANSACTION)

    def in_transaction(self, connection: Connection) -> bool:
        try:
            return connection.in_transaction
        except (ValueError, sqlite3.ProgrammingError):  # closed
            return False

    async def close(self) -> None:
        """A transaction that is still open is rolled back."""
        if self._closed:
            return
        self._closed = True
        self._joining.close()
        try:
            await self.give_up()
        finally:
            await self._alone.close()

    async def begin(self) -> Connection:
        self._check_open()
        await self._alone.lock.acquire()
        try:
            connection = await self._take()
            await call(connection, session.begin, self._path)
        except asyncio.CancelledError:
            await self.end(commit=False)
            raise
        except BaseException:
            self._alone.lock.release()
            raise
        return connection

    async def end(self, *, commit: bool) -> bool:
        """End the transaction, and let the next one in. False: it could not be rolled back."""
        connection = self._own
        intact = False
        try:
            if connection is None:
                raise TransactionMisused(session.ENDED_INSIDE)
            if commit:
                await call(connection, self._database.commit)
                intact = True
            else:
                intact = await call(connection, session.roll_back)
        except TransactionMisused:
            if commit:
                raise
        finally:
            try:
                if not intact:
                    await self.give_up()  # whatever was done to it, the next one is as good as new
            finally:
                self._alone.lock.release()
        return intact

    async def _take(self) -> Connection:
        """A connection that rests: one that was left in some other state is given up."""
        connection = self._own
        if connection is not None and not _is_at_rest(connection):
            await self.give_up()
            connection = None
        if connection is None:
            connection = Connection(self._database.connect, ROWS_AT_ONCE)
            await connection
            self._own = connection
        return connection

    async def give_up(self) -> None:
        connection, self._own = self._own, None
        if connection is not None:
            await to_the_end(connection.close())

    def joined(self, connection: Connection) -> bool:
        self._check_open()
        return connection is not self._own

    def joined_savepoint(self, raw: sqlite3.Connection) -> session.Savepoint:
        """In the connection's thread."""
        self._joining.check(raw)
        savepoint = self._joining.savepoint(raw)
        savepoint.__enter__()
        return savepoint

    def own_savepoint(self, raw: sqlite3.Connection) -> session.Savepoint:
        """In the connection's thread."""
        savepoint = session.Savepoint(raw, self._path)
        savepoint.__enter__()
        return savepoint

    def _execute_inside(self, raw: sqlite3.Connection, command: Statement | Unit[Any]) -> Any:
        session.require_open(raw)
        if isinstance(command, Unit):
            return run_inside(raw, command, self._path)
        return session.execute(raw, command, self._path)

    def _execute_joined(self, raw: sqlite3.Connection, command: Statement | Unit[Any]) -> Any:
        self._joining.check(raw)
        return self._joining.execute(raw, command)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLite provider")


class _Transaction:
    """A transaction on a connection of ours."""

    answer: Any = None

    def __init__(self, provider: AiosqliteProvider) -> None:
        self._provider = provider

    async def __aenter__(self) -> Connection:
        return await self._provider.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        intact = await self._provider.end(commit=error is None)
        if error is not None:
            session.note_if_gone(error, intact=intact)


class _Savepoint:
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: AiosqliteProvider, connection: Connection) -> None:
        self._provider = provider
        self._connection = connection

    async def __aenter__(self) -> None:
        provider = self._provider
        enter = provider.joined_savepoint if provider.joined(self._connection) else provider.own_savepoint
        self._savepoint = await call(self._connection, enter)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await call(self._connection, self._leave, error)
        except TransactionMisused:
            if error is None:
                raise
            session.note_if_gone(error, intact=False)

    def _leave(self, _: sqlite3.Connection, error: BaseException | None) -> None:
        self._savepoint.__exit__(None if error is None else type(error), error, None)


async def call(connection: Connection, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function with the driver's connection, in the thread that it belongs to.

    aiosqlite has no public name for this; the one that its own methods use has been the same in every version.
    """
    any_connection: Any = connection
    try:
        raw: sqlite3.Connection = any_connection._conn
    except ValueError as error:
        raise TransactionMisused(f"this connection cannot be used: {error}") from error
    return await to_the_end(any_connection._execute(function, raw, *arguments))  # type: ignore[no-any-return]


async def to_the_end(step: Any) -> Any:
    """Await something; a cancellation is passed on only when it is done."""
    running = asyncio.ensure_future(step)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            try:
                await asyncio.wait((running,))
            except asyncio.CancelledError:
                continue
        if not running.cancelled():
            running.exception()  # nobody has to look at it
        raise


def _is_at_rest(connection: Connection) -> bool:
    try:
        return not connection.in_transaction
    except (ValueError, sqlite3.ProgrammingError):
        return False


if TYPE_CHECKING:
    _: type[AsyncProvider[Connection]] = AiosqliteProvider
