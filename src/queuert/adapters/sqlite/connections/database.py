"""Opening connections of our own, with the settings for durability and for several processes on one
file.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from queuert.adapters.sqlite.connections import abandoning, session
from queuert.adapters.sqlite.connections.errors import is_busy, translate
from queuert.adapters.sqlite.hub import SqliteHub
from queuert.base.arguments import seconds
from queuert.errors import InvalidArgument, StorageError

# RETURNING needs 3.35, STRICT tables need 3.37, built-in JSON functions need 3.38.
MINIMUM_VERSION = (3, 38, 0)

_PRAGMAS = (
    "PRAGMA foreign_keys = ON",
    "PRAGMA synchronous = FULL",  # a commit that returned survives a power cut
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -16000",
    "PRAGMA journal_size_limit = 67108864",  # a large log is truncated when it is reused
)


class Database:
    """A database file, and how to connect to it. Creating this object does no I/O."""

    def __init__(self, path: str | Path, busy_timeout: float, hub: SqliteHub | None = None) -> None:
        text = str(path)
        if text == ":memory:" or text.startswith("file::memory:"):
            raise InvalidArgument(
                "SQLite in memory is one database for each connection, so it cannot be shared: "
                "connect to memory:// instead"
            )
        if not text or "\0" in text:
            raise InvalidArgument(f"the path of a SQLite database cannot be {text!r}")
        self.path = text
        self.busy_timeout = seconds(busy_timeout, "busy_timeout")
        self._file = Path(text)
        self._hub = hub

    def connect(self, *, read_only: bool = False, patient: bool = True) -> sqlite3.Connection:
        """A new connection. If `patient`, it waits for locks up to the busy timeout; else not at
        all.

        Several threads may use it, one at a time: the caller must ensure that.
        """
        self._check()
        try:
            connection = sqlite3.connect(
                self.path,
                timeout=self.busy_timeout if patient else 0,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=abandoning.OwnRaw,
            )
        except sqlite3.Error as error:
            raise translate(error, self.path) from error
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
            if patient:  # changing the mode may have to wait
                self._use_write_ahead_log(connection)
            if read_only:
                connection.execute("PRAGMA query_only = ON")
        except sqlite3.Error as error:
            connection.close()
            raise translate(error, self.path) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def restore(self, connection: sqlite3.Connection) -> bool:
        """Restore the settings of a connection that wrote for a user, who may have changed them.
        False: it cannot be used again. No I/O.
        """
        try:
            connection.execute("PRAGMA query_only = OFF")
            connection.execute(f"PRAGMA busy_timeout = {round(self.busy_timeout * 1000)}")
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except sqlite3.Error:
            return False
        return True

    def commit(self, connection: sqlite3.Connection) -> None:
        """Commit a transaction of ours: see `session.commit`.

        The hub is told that this process made the commit.
        """
        if self._hub is None:
            session.commit(connection, self.path)
        else:
            with self._hub.own_commit(connection):
                session.commit(connection, self.path)

    def is_same_file(self, other: str) -> bool:
        """Whether this is the file that SQLite names for a connection."""
        try:
            return self._file.samefile(other)
        except OSError:
            return False

    def _check(self) -> None:
        """Explain what SQLite would report as "unable to open"."""
        if sqlite3.sqlite_version_info < MINIMUM_VERSION:
            needed = ".".join(map(str, MINIMUM_VERSION))
            raise StorageError(
                f"SQLite {needed} or newer is needed, this Python has {sqlite3.sqlite_version}: use a newer Python"
            )
        try:
            is_directory, has_parent = self._file.is_dir(), self._file.absolute().parent.is_dir()
        except OSError as error:
            raise StorageError(f"{self.path} cannot be opened: {error}") from error
        if is_directory:
            raise StorageError(f"{self.path} is a directory, not a database file")
        if not has_parent:
            raise StorageError(f"{self.path} cannot be created: the folder {self._file.parent} does not exist")

    def _use_write_ahead_log(self, connection: sqlite3.Connection) -> None:
        if _journal_mode(connection) == "wal":
            return
        # This has an effect only while the file is empty, before the first page is written.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # Changing the mode needs exclusive access to the file, and SQLite does not wait for that.
        # Another process may be changing it now.
        deadline = time.monotonic() + self.busy_timeout
        while True:
            try:
                mode = _journal_mode(connection, "WAL")
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
            else:
                break
        if mode != "wal":
            raise StorageError(f"{self.path} cannot use a write-ahead log, its journal mode stays {mode!r}")


def _journal_mode(connection: sqlite3.Connection, wanted: str | None = None) -> str:
    row = connection.execute("PRAGMA journal_mode" + (f" = {wanted}" if wanted else "")).fetchone()
    return str(row[0])
