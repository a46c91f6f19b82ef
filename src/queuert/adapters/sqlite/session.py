"""What is done on a connection: statements, transactions and savepoints, and noticing that user code broke into them.

Everything here blocks, and knows nothing of threads or event loops: the providers see to that.

In a transaction of ours, user code can end it under our feet: `commit()`, `with connection:` and `executescript()`
do. So each transaction begins with a savepoint. If that is gone at the end, so is the transaction it stood in, even
if another one has been begun since.
"""

from __future__ import annotations

import sqlite3
from types import TracebackType
from typing import Any

from queuert.adapters.sqlite.translating import translate
from queuert.errors import QueuertError, TransactionMisused
from queuert.sql.statement import Statement

_GUARD = "queuert_transaction"
_INNER = "queuert_savepoint"

ENDED_INSIDE = (
    "the transaction was ended by code inside its block: commit(), rollback(), close(), `with connection:` and "
    "executescript() all do that. What was written before may be committed already, what came later is not; "
    "leave the transaction alone, and use execute() and savepoints"
)


def execute(connection: sqlite3.Connection, statement: Statement, path: str) -> list[Any]:
    """Run one statement and fetch what it gives. How the user has set up the connection makes no difference."""
    try:
        text_factory: Any = connection.text_factory
        if text_factory is str:
            return _cursor(connection).execute(statement.text, statement.parameters).fetchall()
        connection.text_factory = str
        try:
            return _cursor(connection).execute(statement.text, statement.parameters).fetchall()
        finally:
            connection.text_factory = text_factory
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """A cursor without a row factory, whatever the connection has.

    Made by the connection: it keeps a reference to each of its cursors, and only here does it drop those of dead ones.
    """
    cursor = sqlite3.Connection.cursor(connection)
    cursor.row_factory = None
    return cursor


def is_open(connection: sqlite3.Connection) -> bool:
    """Whether a transaction is open; not, if the connection has been closed."""
    try:
        return connection.in_transaction
    except sqlite3.ProgrammingError:
        return False


def is_at_rest(connection: sqlite3.Connection) -> bool:
    """Whether a connection of ours can be used anew. Whoever kept it may have closed it, or begun something on it."""
    try:
        return not connection.in_transaction
    except sqlite3.ProgrammingError:
        return False


def require_open(connection: sqlite3.Connection) -> None:
    if not is_open(connection):
        raise TransactionMisused(ENDED_INSIDE)


def begin(connection: sqlite3.Connection, path: str) -> None:
    """Take the write lock at once: a transaction that reads first could not always get it later."""
    try:
        connection.row_factory = None  # the last user's settings are not the next one's
        connection.text_factory = str
        if connection.isolation_level is not None:
            connection.isolation_level = None
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"SAVEPOINT {_GUARD}")
    except sqlite3.Error as error:
        roll_back(connection)
        raise translate(error, path) from error


def commit(connection: sqlite3.Connection, path: str) -> None:
    """Commit, if the transaction is still the one that was begun; otherwise undo what is open, and say so."""
    try:
        require_open(connection)
        _release(connection, _GUARD)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        roll_back(connection)
        raise translate(error, path) from error
    except QueuertError:
        roll_back(connection)
        raise


def roll_back(connection: sqlite3.Connection) -> bool:
    """Undo the transaction. False: it was gone already. An error here would only hide the one that led to it."""
    try:
        intact = connection.in_transaction
        if intact:
            intact = _has(connection, _GUARD)
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return intact


def save(connection: sqlite3.Connection, path: str) -> None:
    """Set a savepoint. They all have one name: SQLite takes the innermost."""
    require_open(connection)
    try:
        connection.execute(f"SAVEPOINT {_INNER}")
    except sqlite3.Error as error:
        raise translate(error, path) from error


def release(connection: sqlite3.Connection, path: str) -> None:
    require_open(connection)
    try:
        _release(connection, _INNER)
    except sqlite3.Error as error:
        raise translate(error, path) from error


def roll_back_to(connection: sqlite3.Connection) -> bool:
    """Go back to the savepoint. False: it is gone, together with its transaction."""
    try:
        if not connection.in_transaction or not _has(connection, _INNER):
            return False
        connection.execute(f"RELEASE {_INNER}")
    except sqlite3.Error:
        return False
    return True


class Savepoint:
    """A block inside the open transaction that is undone on an error."""

    __slots__ = ("_connection", "_path")

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    def __enter__(self) -> None:
        save(self._connection, self._path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            release(self._connection, self._path)
        else:
            note_if_gone(error, intact=roll_back_to(self._connection))


def note_if_gone(error: BaseException, *, intact: bool) -> None:
    """The user's error goes on its way; that it could not be undone is added to it."""
    if not intact:
        error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")


def _has(connection: sqlite3.Connection, name: str) -> bool:
    """Go back to a savepoint, if it is there."""
    try:
        connection.execute(f"ROLLBACK TO {name}")
    except sqlite3.OperationalError as error:
        if "no such savepoint" in str(error):
            return False
        raise
    return True


def _release(connection: sqlite3.Connection, name: str) -> None:
    try:
        connection.execute(f"RELEASE {name}")
    except sqlite3.OperationalError as error:
        if "no such savepoint" in str(error):
            raise TransactionMisused(ENDED_INSIDE) from error
        raise
