"""SQLite tables for tests, whose clock is a row.

The table of the clock is also what marks them: tables without it are not for tests. Its statements
are here and not in `.sql` files, because no other installation has the table.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from queuert.adapters.sql.statement import Statement, check_prefix
from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.connections.errors import translate
from queuert.adapters.sqlite.operations import SqliteOperations
from queuert.adapters.sqlite.operations.rows import Row, micros, moment
from queuert.errors import InvalidArgument
from queuert.ports.clock import Clock, catch_up, follow
from queuert.ports.program import Program


class SqliteInVirtualTime(SqliteOperations):
    def __init__(self, table_prefix: str, clock: Clock, path: Path) -> None:
        self._clock_row = _ClockRow(f"{check_prefix(table_prefix)}test_clock", clock, path)
        super().__init__(table_prefix, self._clock_row.read)

    def migrate(self) -> Program[list[int]]:
        if not self._clock_row.exists:
            ((has_tables, _),) = yield self.statement("migrate.exists")
            yield from together(self._clock_row.create(has_tables=bool(has_tables)))
        return (yield from super().migrate())


class _ClockRow:
    """Read and written on connections of its own: operations ask for the time wherever they are, in
    any thread, and plain function calls move it.
    """

    def __init__(self, table: str, clock: Clock, path: Path) -> None:
        self._table = table
        self._clock = clock
        self._path = path
        self.exists = False
        follow(clock, self.write)

    def create(self, *, has_tables: bool) -> Program[None]:
        """Make the row, or read it. Refuse tables that are not for tests."""
        marks: list[Row] = yield Statement(
            "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = :name", {"name": self._table}, writes=False
        )
        if has_tables and not marks:
            raise InvalidArgument(
                f"clock= is for tests, and the tables {self._table.removesuffix('test_clock')}… of {self._path} are "
                "not: they were made without a clock. Use a file or a table_prefix of its own"
            )
        if not marks:
            yield Statement(f"CREATE TABLE {self._table} (only_row INTEGER PRIMARY KEY, now INTEGER NOT NULL) STRICT")
        rows: list[Row] = yield Statement(
            f"INSERT INTO {self._table} VALUES (1, :now) ON CONFLICT (only_row) DO UPDATE "
            "SET now = max(now, excluded.now) RETURNING now",
            {"now": micros(self._clock.now())},
        )
        catch_up(self._clock, moment(rows[0][0]))
        self.exists = True

    def read(self) -> datetime:
        """Another process may have moved it."""
        if not self.exists:
            return self._clock.now()
        try:
            with closing(sqlite3.connect(self._path)) as connection:
                (now,) = connection.execute(f"SELECT now FROM {self._table}").fetchone()
        except sqlite3.Error as error:
            raise translate(error, str(self._path)) from error
        return moment(now)

    def write(self, now: datetime) -> None:
        if not (self.exists and self._path.exists()):  # the file of an earlier test may be gone
            return
        try:
            with closing(sqlite3.connect(self._path, isolation_level=None)) as connection:
                connection.execute(f"UPDATE {self._table} SET now = ?", (micros(now),))
        except sqlite3.Error as error:
            raise translate(error, str(self._path)) from error
