"""Notifications between the clients of one SQLite file.

Within the process they are exact and immediate. While there are listeners, the file is also watched
for commits of other processes: then every listener is told that it may have missed something.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from weakref import WeakSet

from queuert.adapters.in_process import InProcessHub
from queuert.adapters.sqlite.watch import Watch
from queuert.base.contexts import context
from queuert.ports.notify import Callback, Topic


class SqliteHub(InProcessHub):
    """Shared by the notify adapters of a process that belong to one file, and by the states that
    write to it.

    Give it to `sqlite_state`, too: the hub treats a commit that it does not know of as one of
    another process.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__()
        self._path = str(path)
        self._watch: Watch | None = None
        self._changing = threading.Lock()
        _hubs.add(self)

    def subscribe(self, topic: Topic, callback: Callback) -> object:
        subscription = super().subscribe(topic, callback)
        with self._changing:
            if self._watch is None:
                self._watch = Watch(self._path, self.subscriptions.missed)
                self._watch.start()
        return subscription

    def unsubscribe(self, subscription: object) -> None:
        super().unsubscribe(subscription)
        with self._changing:
            if self._watch is None or self.subscriptions:
                return
            watch, self._watch = self._watch, None
            watch.stop()
        if watch.thread is not threading.current_thread():
            watch.thread.join()

    @context
    def own_commit(self, connection: sqlite3.Connection) -> Iterator[None]:
        """The block is the COMMIT of a transaction of this process that has the write lock."""
        watch = self._watch
        if watch is None:
            yield
        else:
            with watch.own_commit(connection):
                yield

    def begin_anew(self) -> None:
        """In a forked child: forget the parent's listeners, and its thread, which did not survive
        the fork.
        """
        super().__init__()
        if self._watch is not None:
            _parents_watches.append(self._watch)
        self._watch = None
        self._changing = threading.Lock()


_hubs: WeakSet[SqliteHub] = WeakSet()
_parents_watches: list[Watch] = []
"""Never released: SQLite forbids a child process to close its parent's connections."""


def _after_fork() -> None:
    for hub in list(_hubs):
        hub.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
