"""Noticing that another process has committed to the file.

`PRAGMA data_version`, asked again and again on one connection, moves whenever another connection
has committed. One thread asks, on a connection of its own; it reads no page of the database. What
moved, the number does not say.

Commits of this process are no news: its hub has told of them already, and exactly. They are told
apart thus. SQLite has one writer at a time, so before a COMMIT of ours nobody else can commit: what
the number says then is of others. After it, the committing connection's own number still stands if
nobody else has committed since, and then what our number says is of us. A mutex keeps the thread
from looking between the two.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

from queuert.adapters.sqlite.connections.errors import is_busy
from queuert.contexts import context

logger = logging.getLogger("queuert.notify")

# Measured in docs/design/sqlite-watch.md.
SLOW = 0.05
"""Seconds between two looks, when nobody else has written for a while."""
QUICK = 0.01
"""The same, when somebody has."""
QUICK_FOR = 1.0
"""Seconds that are "a while"."""
DEBOUNCE = 0.05
"""Seconds between two calls, at least: so many queries a second may a busy neighbour cost."""


class Watch:
    """From `start` to `stop`, which may be called once each.

    `on_write` is called in the watching thread.
    """

    def __init__(self, path: str, on_write: Callable[[], None]) -> None:
        self._path = Path(path).absolute()
        self._on_write = on_write
        self._mutex = threading.Lock()
        """Guards the connection, and what was seen on it."""
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        """Which file that connection is to."""
        self._seen: int | None = None
        self._others_wrote = False
        self._stopping = threading.Lock()
        self._stopping.acquire()
        self.thread = threading.Thread(target=self._run, name="queuert-sqlite-watch", daemon=True)

    def start(self) -> None:
        """From here on, nothing is overlooked.

        If the file cannot be read now, it is news as soon as it can.
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
            if self._connection is None:  # stopped, or there is nothing to be seen
                yield
                return
            self._look()
            before = _data_version(committing)
            yield
            seen, after = _data_version(self._connection), _data_version(committing)
            if seen is not None and after is not None:  # otherwise it will look like news, which does no harm
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
            return False  # a commit of ours is under way: the next look will tell
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
            return  # the file is gone; another may come in its place
        except sqlite3.Error as error:
            if not is_busy(error):
                logger.debug("%s cannot be watched for now: %s", self._path, error)
                self._disconnect()
            return
        if version != self._seen:
            self._seen = version
            self._others_wrote = True

    def _connect_if_needed(self) -> None:
        """A file that has been put in the place of another one is news, too. While we are connected
        to the old file, the new one cannot get its inode's number.
        """
        found = self._path.stat()
        file = (found.st_dev, found.st_ino)
        if file == self._file:
            return
        self._disconnect()
        self._connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",  # never makes a file
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
    """None if it cannot be told, for whatever reason: a commit must not fail for that."""
    try:
        return None if connection is None else _read(connection)
    except sqlite3.Error:
        return None
