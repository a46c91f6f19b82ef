"""Connections of the caller: what they must be like, and the errors that explain it.

They are used in the thread of the caller: a `sqlite3.Connection` belongs to the thread that opened
it.
"""

from __future__ import annotations

import sqlite3
import threading
from typing import Any, TypeGuard

from queuert.adapters.sqlite.connections import session
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.errors import is_busy, translate
from queuert.errors import ClientClosed, StorageBusy, TransactionMisused

_BEGIN = 'begin one with connection.execute("BEGIN IMMEDIATE") inside the after_commit() block'
NO_TRANSACTION = f"no transaction is open on this connection: {_BEGIN}"


class JoinedConnections:
    """Work in transactions that are not ours: they are never committed, rolled back or closed
    here.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._path = database.path
        self._savepoints: dict[int, int] = {}
        """Connection (by `id`) → open savepoints of ours. The write lock was checked before the
        first."""
        self._mutex = threading.Lock()
        """Guards the connection that finds out whether the write lock is free."""
        self._probe: sqlite3.Connection | None = None
        self._closed = False

    def check(self, connection: object) -> None:
        """Refuse a connection whose transaction cannot store jobs."""
        if self.check_file(connection):
            _require_transaction(connection)

    def check_file(self, connection: object) -> TypeGuard[sqlite3.Connection]:
        """Refuse a connection that cannot be used here, or is to another database."""
        if not isinstance(connection, sqlite3.Connection):
            raise not_a("a sqlite3.Connection", connection)
        try:
            rows = sqlite3.Cursor(connection).execute("PRAGMA database_list").fetchall()
        except sqlite3.ProgrammingError as error:  # closed, or opened by another thread
            raise TransactionMisused(f"this connection cannot be joined: {error}") from error
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        file = rows[0][2]
        if isinstance(file, bytes):  # the user's text_factory
            file = file.decode()
        if not file or not self._database.is_same_file(file):
            raise TransactionMisused(
                f"this connection is to {file or 'a database in memory'}, but the jobs live in {self._path}: "
                "a transaction cannot span two databases"
            )
        return True

    def run(self, connection: sqlite3.Connection, command: Command) -> Any:
        _require_transaction(connection)
        if command.writes and id(connection) not in self._savepoints:
            self._require_write_lock()
        try:
            return session.run(connection, command, self._path)
        except StorageBusy as busy:  # never happens to a transaction that has the write lock
            raise TransactionMisused(
                f"the transaction of this connection does not hold the write lock of {self._path}, and cannot get it "
                f"now, because another connection writes or has written: {_BEGIN}"
            ) from busy.__cause__

    def savepoint(self, connection: sqlite3.Connection) -> session.Savepoint:
        return _JoinedSavepoint(self, connection, self._path)

    def enter(self, connection: sqlite3.Connection) -> None:
        """Before a savepoint. The outermost one checks the write lock for all that is in it."""
        _require_transaction(connection)
        depth = self._savepoints.get(id(connection), 0)
        if not depth:
            self._require_write_lock()
        self._savepoints[id(connection)] = depth + 1

    def leave(self, connection: sqlite3.Connection) -> None:
        self._savepoints[id(connection)] -= 1
        if not self._savepoints[id(connection)]:
            del self._savepoints[id(connection)]

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._probe is not None:
                self._probe.close()
                self._probe = None

    def _require_write_lock(self) -> None:
        """Refuse a transaction that does not hold the write lock.

        A transaction that begins with plain BEGIN gets the lock at its first write, and only if no
        other connection writes then, or has written since the transaction first read. That works in
        tests and fails under load. If the lock is free, the transaction does not hold it. If it is
        taken, the write itself shows whether this transaction holds it.
        """
        with self._mutex:
            if self._write_lock_is_free():
                raise TransactionMisused(
                    "the transaction of this connection does not hold the write lock, so writing jobs in it would fail "
                    f"whenever another connection writes: {_BEGIN}, or write your own rows first"
                )

    def _write_lock_is_free(self) -> bool:
        if self._closed:
            raise ClientClosed("SQLite provider")
        if self._probe is None:
            self._probe = self._database.connect(patient=False)
        try:
            self._probe.execute("BEGIN IMMEDIATE")
            self._probe.execute("ROLLBACK")
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            raise translate(error, self._path) from error
        return True


class _JoinedSavepoint(session.Savepoint):
    """A savepoint in the caller's transaction."""

    __slots__ = ("_joined",)

    def __init__(self, joined: JoinedConnections, connection: sqlite3.Connection, path: str) -> None:
        super().__init__(connection, path)
        self._joined = joined

    def __enter__(self) -> None:
        self._joined.enter(self._connection)
        try:
            super().__enter__()
        except BaseException:
            self._joined.leave(self._connection)
            raise

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self._joined.leave(self._connection)
        super().__exit__(kind, error, traceback)


def not_a(wanted: str, given: object) -> TransactionMisused:
    return TransactionMisused(f"expected {wanted}, got {type(given).__module__}.{type(given).__qualname__}")


def _require_transaction(connection: sqlite3.Connection) -> None:
    if not session.is_open(connection):
        raise TransactionMisused(NO_TRANSACTION)
