"""aiosqlite: transactions on its connections, ours or the caller's.

An aiosqlite connection has a thread of its own, and all work on it is done there. So the event loop
is never blocked, not even by work on a joined connection. Commands outside of transactions use the
same threads as `AsyncSqliteProvider`.

Cancellation. Waiting for the lock ends at once. A call that is under way in a connection's thread
is waited for. That includes BEGIN, which takes no longer than the busy timeout.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from aiosqlite import Connection

from queuert.adapters.finishing import finish
from queuert.adapters.sqlite.connections import abandoning, session
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.joined import NO_TRANSACTION, not_a
from queuert.adapters.sqlite.connections.own import end
from queuert.adapters.sqlite.drivers.threaded import BaseAsyncProvider
from queuert.errors import TransactionMisused
from queuert.ports.provider import AsyncProvider

T = TypeVar("T")

ROWS_AT_ONCE = 64
"""How many rows aiosqlite fetches at once for an iteration; its own default."""


class AiosqliteProvider(BaseAsyncProvider[Connection]):
    """aiosqlite for an event loop."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._kept: Connection | None = None
        """The connection for transactions. It is opened when it is first needed, and after it was
        lost."""

    def check(self, connection: Any) -> None:
        """Without I/O. The file is checked in the connection's thread, at the first command."""
        self._check_open()
        if not isinstance(connection, Connection):
            raise not_a("an aiosqlite.Connection", connection)
        if not self.in_transaction(connection):
            raise TransactionMisused(NO_TRANSACTION)

    async def begin(self, first: Command | None) -> tuple[Connection, Any]:
        self._check_open()
        await self.lock.acquire_async()
        try:
            return await finish(self._begin(first))
        except asyncio.CancelledError as error:
            await self.end(error)  # the transaction may have begun
            raise
        except BaseException:
            self.lock.release()
            raise

    async def end(self, error: BaseException | None) -> None:
        connection, self._own = self._own, None
        intact = connection is None
        try:
            if connection is not None:
                intact = await call(connection, end, self.database, error)
        except TransactionMisused:
            if error is None:
                raise
            session.note_if_gone(error, intact=False)
        finally:
            try:
                if not intact:
                    await self._drop()
            finally:
                self.lock.release()

    def abandon(self, connection: Any) -> bool:
        try:
            return abandoning.abandon(connection._conn)
        except ValueError:  # it is closed
            return True

    async def in_thread(self, connection: Connection, function: Callable[[sqlite3.Connection], T]) -> T:
        return await call(connection, function)

    async def close(self) -> None:
        await super().close()
        await self._drop()

    async def _begin(self, first: Command | None) -> tuple[Connection, Any]:
        if self._kept is not None and not session.is_at_rest(self._kept):
            await self._drop()
        if self._kept is None:
            self._kept = await Connection(self.database.connect, ROWS_AT_ONCE)
        answer = await call(self._kept, session.begin, self.database.path, first)
        self._own = self._kept
        return self._own, answer

    async def _drop(self) -> None:
        connection, self._kept = self._kept, None
        if connection is not None:
            await finish(connection.close())

    def _run(self, connection: sqlite3.Connection, command: Command, *, own: bool) -> Any:
        if not own:
            self._joined.check(connection)
        return super()._run(connection, command, own=own)

    def _savepoint(self, connection: sqlite3.Connection, *, own: bool) -> session.Savepoint:
        if not own:
            self._joined.check(connection)
        return super()._savepoint(connection, own=own)


async def call(connection: Connection, function: Callable[..., T], *arguments: Any) -> T:
    """Call a function with the driver's connection, in the thread that it belongs to.

    aiosqlite has no public name for this. Its own methods use this one, in every version so far.
    """
    any_connection: Any = connection
    try:
        raw: sqlite3.Connection = any_connection._conn
    except ValueError as error:
        raise TransactionMisused(f"this connection cannot be used: {error}") from error
    return await finish(any_connection._execute(function, raw, *arguments))


if TYPE_CHECKING:
    _: type[AsyncProvider[Connection]] = AiosqliteProvider
