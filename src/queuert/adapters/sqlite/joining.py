"""Connections that the caller brings: what is asked of them, and the errors that explain it.

They are used where they are, on the thread of the caller: a `sqlite3.Connection` belongs to the thread that opened it.
"""

from __future__ import annotations

import sqlite3
import threading
from types import TracebackType
from typing import Any, TypeGuard

from queuert.adapters.sqlite import session
from queuert.adapters.sqlite.connecting import Database
from queuert.adapters.sqlite.translating import is_busy, translate
from queuert.adapters.sqlite.unit import Unit, run_inside
from queuert.errors import ClientClosed, StorageBusy, TransactionMisused
from queuert.sql.statement import Statement

_BEGIN = 'begin one with connection.execute("BEGIN IMMEDIATE") inside the after_commit() block'
NO_TRANSACTION = f"no transaction is open on this connection: {_BEGIN}"


class Joining:
    """Work in transactions that are not ours: never committed, rolled back or closed here."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._path = database.path
        self._write_lock = WriteLockCheck(database)
        self._saved: set[int] = set()
        """The connections with a savepoint of ours: their write lock has been seen to."""

    def check(self, connection: object) -> None:
        """Refuse a connection whose transaction cannot take jobs."""
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
                "a transaction is about one database"
            )
        return True

    def execute(self, connection: sqlite3.Connection, command: Statement | Unit[Any]) -> Any:
        _require_transaction(connection)
        if command.writes and id(connection) not in self._saved:
            self._write_lock.require()
        try:
            if isinstance(command, Unit):
                return run_inside(connection, command, self._path)
            return session.execute(connection, command, self._path)
        except StorageBusy as busy:  # a transaction that has the write lock never meets this
            raise TransactionMisused(
                f"the transaction of this connection does not hold the write lock of {self._path}, and cannot get it "
                f"now, because somebody else writes or has written: {_BEGIN}"
            ) from busy.__cause__

    def savepoint(self, connection: sqlite3.Connection) -> JoinedSavepoint:
        return JoinedSavepoint(self, connection, self._path)

    def enter(self, connection: sqlite3.Connection) -> bool:
        """A savepoint is about to be set. True: the first one, which sees to the write lock."""
        _require_transaction(connection)
        if id(connection) in self._saved:
            return False
        self._write_lock.require()
        self._saved.add(id(connection))
        return True

    def leave(self, connection: sqlite3.Connection) -> None:
        self._saved.discard(id(connection))

    def close(self) -> None:
        self._write_lock.close()


class JoinedSavepoint(session.Savepoint):
    """A savepoint in the caller's transaction."""

    __slots__ = ("_is_first", "_joining")

    def __init__(self, joining: Joining, connection: sqlite3.Connection, path: str) -> None:
        super().__init__(connection, path)
        self._joining = joining
        self._is_first = False

    def __enter__(self) -> None:
        self._is_first = self._joining.enter(self._connection)
        try:
            super().__enter__()
        except BaseException:
            self._leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._leave()
        super().__exit__(kind, error, traceback)

    def _leave(self) -> None:
        if self._is_first:
            self._joining.leave(self._connection)


def not_a(wanted: str, given: object) -> TransactionMisused:
    return TransactionMisused(f"expected {wanted}, got {type(given).__module__}.{type(given).__qualname__}")


def _require_transaction(connection: sqlite3.Connection) -> None:
    if not session.is_open(connection):
        raise TransactionMisused(NO_TRANSACTION)


class WriteLockCheck:
    """Finds out that a joined transaction has no write lock, by taking the lock on a connection beside it.

    A transaction begun with plain BEGIN has none until its first write, and then gets it only if nobody has written
    since it first read, and nobody is writing now: it would work on a quiet day, and fail on a busy one. If the lock
    is free, the transaction certainly has none; if not, the write itself will tell.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closed = False

    def require(self) -> None:
        with self._mutex:
            free = self._is_free()
        if free:
            raise TransactionMisused(
                "the transaction of this connection does not hold the write lock, so writing jobs in it would fail "
                f"whenever somebody else writes: {_BEGIN}, or write your own rows first"
            )

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _is_free(self) -> bool:
        if self._closed:
            raise ClientClosed("SQLite provider")
        if self._connection is None:
            self._connection = self._database.connect(patient=False)
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            if is_busy(error):
                return False
            raise translate(error, self._database.path) from error
        return True
