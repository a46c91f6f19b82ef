"""sqlite3, and aiosqlite over it.

Python's `sqlite3` begins a transaction before the first write, but not before a read. So SQLAlchemy
may regard a transaction as open that has not begun yet. Then we begin it, with the write lock: that
changes nothing, because nothing has happened in it. A transaction that has begun without the write
lock is refused, as it would be without SQLAlchemy.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy.engine import AdaptedConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection as Pooled

from queuert.adapters.sqlalchemy.dialect import Dialect
from queuert.adapters.sqlite.connections import abandoning, session
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.errors import translate
from queuert.adapters.sqlite.connections.joined import JoinedConnections
from queuert.errors import TransactionMisused

T = TypeVar("T")

_AUTOCOMMIT = (
    "this connection is in autocommit mode and no transaction is open on it, so what is written could not be rolled "
    "back: leave out isolation_level='AUTOCOMMIT', or begin with BEGIN IMMEDIATE"
)

_SAVEPOINT = (
    "this savepoint may be the whole transaction: Python's sqlite3 does not begin one before it, and then its release "
    "is a commit. Let SQLAlchemy begin, with isolation_level = None and BEGIN IMMEDIATE in the engine's 'begin' event, "
    "as docs/sqlalchemy.md shows"
)


class SqliteDialect(Dialect):
    def __init__(self, database: Database) -> None:
        self._path = database.path
        self._joined = JoinedConnections(database)

    def begin(self, pooled: Pooled) -> None:
        _on_driver(pooled, self._begin)

    def run(self, pooled: Pooled, command: Command) -> Any:
        return _on_driver(pooled, lambda connection: self._run(connection, command))

    def run_joined(self, pooled: Pooled, command: Command, *, stranger: bool) -> Any:
        def run(connection: sqlite3.Connection) -> Any:
            if stranger:
                self._joined.check_file(connection)
            return self._run_joined(connection, command)

        return _on_driver(pooled, run)

    def begin_joined(self, pooled: Pooled) -> None:
        """Outside of a transaction SAVEPOINT would begin one, and its release would commit it."""

        def begin(connection: sqlite3.Connection) -> None:
            if not session.is_open(connection):
                self._begin_joined(connection)

        _on_driver(pooled, begin)

    def check_nested(self, pooled: Pooled) -> None:
        def check(connection: sqlite3.Connection) -> None:
            # It is inside of one if the user's engine sends BEGIN itself, or if Python (from 3.12)
            # always keeps a transaction open.
            if connection.isolation_level is not None and self._autocommit(connection) is not False:
                raise TransactionMisused(_SAVEPOINT)

        _on_driver(pooled, check)

    def abandon(self, driver_connection: Any) -> bool:
        """Where its thread alone can use it, as with aiosqlite, what runs is only interrupted."""
        connection = driver_connection
        if not isinstance(connection, sqlite3.Connection):
            try:
                connection = connection._conn  # of aiosqlite
            except ValueError:  # it is closed
                return True
        return abandoning.abandon(connection)

    def check_before_commit(self, pooled: Pooled) -> None:
        """A statement that fails leaves the transaction as it was."""
        _on_driver(pooled, session.require_open)

    def translated(self, error: DBAPIError, *, inside: bool) -> BaseException:  # noqa: ARG002
        return translate(error.orig, self._path) if isinstance(error.orig, sqlite3.Error) else error

    def close(self) -> None:
        self._joined.close()

    def _begin(self, connection: sqlite3.Connection) -> None:
        """With the write lock, whatever kind of BEGIN the user's engine may have sent already."""
        if self._autocommit(connection) is True:  # commit() and rollback() do nothing
            raise TransactionMisused(_AUTOCOMMIT)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise translate(error, self._path) from error

    def _autocommit(self, connection: sqlite3.Connection) -> object:
        """The setting that connections have from Python 3.12 on. Before: None."""
        try:
            return getattr(connection, "autocommit", None)
        except sqlite3.Error as error:  # closed, or of another thread
            raise translate(error, self._path) from error

    def _run(self, connection: sqlite3.Connection, command: Command) -> Any:
        session.require_open(connection)
        return session.run(connection, command, self._path)

    def _run_joined(self, connection: sqlite3.Connection, command: Command) -> Any:
        try:
            is_open = connection.in_transaction
        except sqlite3.Error as error:  # closed, or of another thread
            raise translate(error, self._path) from error
        if is_open:
            return self._joined.run(connection, command)
        if command.writes:
            self._begin_joined(connection)
            return self._run(connection, command)
        return session.run(connection, command, self._path)

    def _begin_joined(self, connection: sqlite3.Connection) -> None:
        if connection.isolation_level is None:
            raise TransactionMisused(_AUTOCOMMIT)
        self._begin(connection)


def _on_driver(pooled: Pooled, function: Callable[[sqlite3.Connection], T]) -> T:
    """Call a function with the sqlite3 connection, in the thread that it belongs to."""
    dbapi: object = pooled.dbapi_connection
    if isinstance(dbapi, AdaptedConnection):
        from queuert.adapters.sqlite.drivers.aiosqlite import call

        return dbapi.run_async(lambda driver: call(driver, function))
    connection: Any = dbapi
    return function(connection)
