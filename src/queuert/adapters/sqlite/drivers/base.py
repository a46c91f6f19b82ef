"""What the three providers share: which commands run where, on our connections and on joined
ones.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from queuert.adapters.sqlite.connections import session
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.joined import JoinedConnections
from queuert.errors import ClientClosed


class BaseProvider:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._joined = JoinedConnections(database)
        self._closed = False

    def check(self, connection: Any) -> None:
        self._check_open()
        self._joined.check(connection)

    def in_transaction(self, connection: Any) -> bool:
        return session.is_open(connection)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("SQLite provider")

    def _run(self, connection: sqlite3.Connection, command: Command, *, own: bool) -> Any:
        """A command in an open transaction: one of ours, or one that was joined."""
        if not own:
            return self._joined.run(connection, command)
        session.require_open(connection)
        return session.run(connection, command, self.database.path)

    def _savepoint(self, connection: sqlite3.Connection, *, own: bool) -> session.Savepoint:
        return session.Savepoint(connection, self.database.path) if own else self._joined.savepoint(connection)
