"""A connection of ours: opened when it is first needed, and replaced when it cannot be used again.

Everything here blocks, and is called in one thread at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from queuert.adapters.sql.statement import Statement
from queuert.adapters.sqlite.connections import session
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.database import Database
from queuert.errors import StorageReadOnly


class OwnConnection:
    def __init__(self, database: Database, *, read_only: bool = False) -> None:
        self._database = database
        self._read_only = read_only
        self.raw: sqlite3.Connection | None = None
        self.given_up: Callable[[], bool] = _never
        """Whether the caller has stopped waiting. A thread that serves an event loop sets it for
        each call."""

    def take(self) -> sqlite3.Connection:
        """The connection, with no transaction open."""
        if self.raw is not None and not session.is_at_rest(self.raw):
            self.close()
        if self.raw is None:
            self.raw = self._database.connect(read_only=self._read_only)
        return self.raw

    def run_alone(self, command: Command) -> Any:
        """Outside a transaction: committed at once, unless the caller has given up by then."""
        connection, path = self.take(), self._database.path
        try:
            return self._run_alone(connection, command, path)
        except StorageReadOnly:
            # Perhaps only this connection: user code that kept it may have changed its settings.
            self.close()
            raise

    def _run_alone(self, connection: sqlite3.Connection, command: Command, path: str) -> Any:
        if isinstance(command, Statement):
            return session.execute(connection, command, path)
        session.begin(connection, path)
        try:
            result = session.drive(connection, command.program, path)
        except BaseException:
            session.roll_back(connection)
            raise
        if self.given_up():
            session.roll_back(connection)
        else:
            self._database.commit(connection)
        return result

    def begin(self, first: Command | None) -> tuple[sqlite3.Connection, Any]:
        """The connection with a transaction open on it, and the answer to the `first` command."""
        connection = self.take()
        return connection, session.begin(connection, self._database.path, first)

    def end(self, error: BaseException | None) -> None:
        """End the transaction. A connection that user code has broken is closed."""
        assert self.raw is not None, "begin() has opened it"
        intact = False
        try:
            intact = end(self.raw, self._database, error)
        finally:
            if not intact:
                self.close()

    def undo(self) -> None:
        """Roll back, if a transaction is open."""
        if self.raw is not None and session.is_open(self.raw) and not session.roll_back(self.raw):
            self.close()

    def interrupt(self) -> None:
        """In another thread: make the statement that is running fail."""
        if self.raw is not None:
            self.raw.interrupt()

    def close(self) -> None:
        connection, self.raw = self.raw, None
        if connection is not None:
            connection.close()


def end(connection: sqlite3.Connection, database: Database, error: BaseException | None) -> bool:
    """Commit, or roll back if there is an error. False: the connection cannot be used again."""
    if error is None:
        database.commit(connection)
        return database.restore(connection)
    intact = session.roll_back(connection)
    session.note_if_gone(error, intact=intact)
    return intact and database.restore(connection)


def _never() -> bool:
    return False
