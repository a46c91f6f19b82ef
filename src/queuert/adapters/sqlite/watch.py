"""Noticing that another process has committed to the file.

`PRAGMA data_version` returns a number. On one connection, it changes whenever another connection
has committed. One thread polls it on a separate connection, which reads no page of the database.
The number does not show what was committed.

Commits of this process must not be reported: its hub has already notified the listeners. They are
recognized like this. SQLite has one writer at a time, so while we hold the write lock no other
process can commit. A change of the number before our COMMIT comes from another process. After our
COMMIT, we also read the number on the committing connection. If it is unchanged, no other process
has committed since, so the change of our number comes from our own COMMIT. A mutex keeps the thread
from polling between the two reads.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from queuert.adapters.sqlite.connections.errors import is_busy
from queuert.base.contexts import context

logger = logging.getLogger("queuert.notify")

# Measured in docs/design/sqlite-watch.md.
SLOW = 0.05
"""Seconds between two polls, if no other process has committed for `QUICK_FOR` seconds."""
QUICK = 0.01
"""Seconds between two polls, if another process has committed recently."""
QUICK_FOR = 1.0
"""Seconds to poll quickly after a commit of another process."""
DEBOUNCE = 0.05
"""Minimum seconds between two calls. It limits the queries that a busy other process causes."""


class Watch:
    """Watches from `start` to `stop`. Each may be called once.

    `on_write` is called in the watching thread.
    """

    def __init__(self, path: str, on_write: Callable[[], None]) -> None:
        self._path = Path(path).absolute()
        self._on_write = on_write
        self._mutex = threading.Lock()
        """Guards the connection, and the number last seen on it."""
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """The device and inode of the file that the connection has open."""
        self._seen: int | None = None
        self._others_wrote = False
        self._stopping = threading.Lock()
        self._stopping.acquire()
        self.thread = threading.Thread(target=self._run, name="queuert-sqlite-watch", daemon=True)

    def start(self) -> None:
        """Every later commit is reported.

        If the file cannot be read now, a change is reported as soon as it can.
        """
        with self._mutex:
            self._look()
            self._others_wrote = False
        self.thread.start()

    def stop(self) -> None:
        """Does not wait for the thread."""
        self._stopping.release()

    @context
    def own_commit(self, committing: sqlite3.Connection) -> Iterator[None]:
        """The block is the COMMIT of a transaction that has the write lock."""
        with self._mutex:
            if self._connection is None:  # stopped, or the file does not exist
                yield
                return
            self._look()
            before = _data_version(committing)
            yield
            seen, after = _data_version(self._connection), _data_version(committing)
            if seen is not None and after is not None:  # otherwise our commit is reported too, which is harmless
                self._seen = seen
                self._others_wrote = self._others_wrote or after != before

    def _run(self) -> None:
        news = False
        next_call = quick_until = 0.0
        pause = SLOW
        while not self._stopping.acquire(timeout=pause):
            now = monotonic()
            if self._have_others_written():
                news = True
                quick_until = now + QUICK_FOR
            if news and now >= next_call:
                news = False
                next_call = now + DEBOUNCE
                self._on_write()
            pause = QUICK if now < quick_until else SLOW
        with self._mutex:
            self._disconnect()

    def _have_others_written(self) -> bool:
        if not self._mutex.acquire(blocking=False):
            return False  # a commit of ours is under way: the next poll will see it
        try:
            self._look()
            wrote, self._others_wrote = self._others_wrote, False
            return wrote
        finally:
            self._mutex.release()

    def _look(self) -> None:
        try:
            self._connect_if_needed()
            if self._connection is None:
                return
            version = _read(self._connection)
        except OSError:
            return  # the file is gone; another may replace it
        except sqlite3.Error as error:
            if not is_busy(error):
                logger.debug("%s cannot be watched for now: %s", self._path, error)
                self._disconnect()
            return
        if version != self._seen:
            self._seen = version
            self._others_wrote = True

    def _connect_if_needed(self) -> None:
        """A file that replaces another one is reported too.

        While we have the old file open, the new one cannot get its inode number.
        """
        found = self._path.stat()
        file = (found.st_dev, found.st_ino)
        if file == self._file:
            return
        self._disconnect()
        self._connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",  # never creates a file
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
        )
        self._file = file

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._file = self._seen = None
        if connection is not None:
            connection.close()


def _read(connection: sqlite3.Connection) -> int:
    cursor = sqlite3.Connection.cursor(connection)
    cursor.row_factory = None
    return int(cursor.execute("PRAGMA data_version").fetchone()[0])


def _data_version(connection: sqlite3.Connection | None) -> int | None:
    """None if it cannot be read, for any reason: a commit must not fail because of that."""
    try:
        return None if connection is None else _read(connection)
    except sqlite3.Error:
        return None
