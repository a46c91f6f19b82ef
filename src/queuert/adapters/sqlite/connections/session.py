"""What is done on a connection: statements, transactions and savepoints.

Everything here blocks, and knows nothing about threads or event loops: the drivers handle those.

User code can end a transaction of ours: `commit()`, `with connection:` and `executescript()` do
that. So each transaction begins with a savepoint. If the savepoint is gone at the end, then its
transaction was ended, even if another one has begun since.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from queuert.adapters.sql.statement import Statement
from queuert.adapters.sqlite.connections.abandoning import OwnRaw
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.errors import is_bad_text, translate
from queuert.errors import QueuertError, TransactionMisused
from queuert.ports.program import Program

_GUARD = "queuert_transaction"
_INNER = "queuert_savepoint"

ENDED_INSIDE = (
    "the transaction was ended by code inside its block: commit(), rollback(), close(), `with connection:` and "
    "executescript() all do that. What was written before may be committed already, what came later is not; "
    "leave the transaction alone, and use execute() and savepoints"
)


def execute(connection: sqlite3.Connection, statement: Statement, path: str) -> list[Any]:
    """Run one statement and fetch its rows. Row and text factories of the user have no effect.

    Text that is not UTF-8 was written by hand. It must not cost all the other rows. A read is
    repeated with another decoder, which costs too much to be used for every text. A write cannot
    be repeated: it fails, and its connection uses the other decoder from then on.
    """
    tolerant = getattr(connection, "has_met_bad_text", False)
    try:
        try:
            return _fetch(connection, statement, _decode_anything if tolerant else str)
        except sqlite3.OperationalError as error:
            if not is_bad_text(error):
                raise
            if isinstance(connection, OwnRaw):
                connection.has_met_bad_text = True
            if statement.writes:
                raise
            return _fetch(connection, statement, _decode_anything)
    except sqlite3.Error as error:
        raise translate(error, path) from error


def _fetch(connection: sqlite3.Connection, statement: Statement, text_factory: Any) -> list[Any]:
    of_the_user: Any = connection.text_factory
    if of_the_user is text_factory:
        return _cursor(connection).execute(statement.text, statement.parameters).fetchall()
    connection.text_factory = text_factory
    try:
        return _cursor(connection).execute(statement.text, statement.parameters).fetchall()
    finally:
        connection.text_factory = of_the_user


def _decode_anything(text: bytes) -> str:
    return text.decode(errors="replace")


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """A cursor without a row factory.

    Made by the connection: it has a list of its cursors, and drops dead ones only when it makes
    one.
    """
    cursor = sqlite3.Connection.cursor(connection)
    cursor.row_factory = None
    return cursor


def run(connection: sqlite3.Connection, command: Command, path: str) -> Any:
    """Carry out a command in the transaction that is open: all of it, or nothing."""
    if isinstance(command, Statement):
        return execute(connection, command, path)
    with Savepoint(connection, path):
        return drive(connection, command.program, path)


def drive(connection: sqlite3.Connection, program: Program[Any], path: str) -> Any:
    """Run a program of statements to its end.

    An error of a statement is raised inside the program.
    """
    try:
        statement = next(program)
        while True:
            try:
                rows = execute(connection, statement, path)
            except Exception as error:
                statement = program.throw(error)
            else:
                statement = program.send(rows)
    except StopIteration as done:
        return done.value


def is_open(connection: Any) -> bool:
    """Whether a transaction is open; False for a closed connection. Of sqlite3 or of aiosqlite."""
    try:
        return bool(connection.in_transaction)
    except (ValueError, sqlite3.ProgrammingError):
        return False


def is_at_rest(connection: Any) -> bool:
    """Whether a connection of ours can be used again. User code that kept it may have closed it, or
    begun a transaction on it. It may have been abandoned when its COMMIT was under way."""
    try:
        raw = getattr(connection, "_conn", connection)  # of aiosqlite
        return not (connection.in_transaction or getattr(raw, "abandoned", False))
    except (ValueError, sqlite3.ProgrammingError):
        return False


def require_open(connection: sqlite3.Connection) -> None:
    if not is_open(connection):
        raise TransactionMisused(ENDED_INSIDE)


def begin(connection: sqlite3.Connection, path: str, first: Command | None = None) -> Any:
    """Begin with the write lock: a transaction that reads first cannot always get it later.

    Returns the answer to the `first` command. If that fails, no transaction is open.
    """
    try:
        connection.row_factory = None  # user code may have changed these
        connection.text_factory = str
        if connection.isolation_level is not None:
            connection.isolation_level = None
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"SAVEPOINT {_GUARD}")
        return None if first is None else run(connection, first, path)
    except BaseException as error:
        roll_back(connection)
        if isinstance(error, sqlite3.Error):
            raise translate(error, path) from error
        raise


def commit(connection: sqlite3.Connection, path: str) -> None:
    """Commit, if the transaction is still the one that was begun; else roll back and raise."""
    try:
        require_open(connection)
        _release(connection, _GUARD, path)
        connection.execute("COMMIT")
    except (sqlite3.Error, QueuertError) as error:
        roll_back(connection)
        if isinstance(error, sqlite3.Error):
            raise translate(error, path) from error
        raise


def roll_back(connection: sqlite3.Connection) -> bool:
    """Undo the transaction. False if it had ended before. Does not raise: that would hide the error
    that led here."""
    try:
        intact = connection.in_transaction
        if intact:
            intact = _roll_back_to(connection, _GUARD)
            connection.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return intact


def save(connection: sqlite3.Connection, path: str) -> None:
    """Set a savepoint. They all have the same name: SQLite uses the innermost one."""
    require_open(connection)
    try:
        connection.execute(f"SAVEPOINT {_INNER}")
    except sqlite3.Error as error:
        raise translate(error, path) from error


def release(connection: sqlite3.Connection, path: str) -> None:
    require_open(connection)
    _release(connection, _INNER, path)


def roll_back_to(connection: sqlite3.Connection) -> bool:
    """Undo what was done since the savepoint.

    False if that is gone, together with its transaction.
    """
    try:
        if not connection.in_transaction or not _roll_back_to(connection, _INNER):
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

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if error is None:
            release(self._connection, self._path)
        else:
            note_if_gone(error, intact=roll_back_to(self._connection))


def note_if_gone(error: BaseException, *, intact: bool) -> None:
    """The user's error is raised as it is, with a note if its block could not be rolled back."""
    if not intact:
        error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")


def _roll_back_to(connection: sqlite3.Connection, name: str) -> bool:
    try:
        connection.execute(f"ROLLBACK TO {name}")
    except sqlite3.OperationalError as error:
        if "no such savepoint" in str(error):
            return False
        raise
    return True


def _release(connection: sqlite3.Connection, name: str, path: str) -> None:
    try:
        connection.execute(f"RELEASE {name}")
    except sqlite3.Error as error:
        if "no such savepoint" in str(error):
            raise TransactionMisused(ENDED_INSIDE) from error
        raise translate(error, path) from error
