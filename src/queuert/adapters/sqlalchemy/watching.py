"""Noticing the end of a root transaction, and the savepoints in it.

SQLAlchemy's own events are not enough. A session's `after_commit` is also called for savepoints,
and too early if the session has joined the transaction of an outer connection. An engine's `commit`
is called before the COMMIT, which may fail. So we wrap the method of the connection that every
commit goes through, and the one that names a savepoint. Both are private. They are the same in 2.0
and 2.1, and the tests run with both versions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any
from weakref import ref

from sqlalchemy import Connection, event

from queuert.ports.provider import AfterCommitWork

logger = logging.getLogger("queuert.transaction")

_ATTRIBUTE = "_queuert_watch"
Restore = Callable[[], None]


class Watch:
    """Attached to one SQLAlchemy connection, for its whole life."""

    def __init__(self, connection: Connection) -> None:
        self._connection = ref(connection)  # weak, because the connection refers to us
        self._works: dict[AfterCommitWork, Restore] = {}
        """The work that waits for the commit, and the function that empties it."""
        self._savepoints: dict[str, dict[AfterCommitWork, Restore]] = {}
        watched: Any = connection
        watched._commit_impl = self._commit
        watched._savepoint_impl = self._set_savepoint
        event.listen(connection, "rollback", self._rolled_back)
        event.listen(connection, "rollback_savepoint", self._rolled_back_to)

    def add(self, work: AfterCommitWork, nothing: Restore) -> None:
        self._works.setdefault(work, nothing)

    def _commit(self) -> None:
        works = list(self._works)
        self._forget()  # whether it succeeds or not, the transaction is over
        connection_class: Any = Connection
        connection_class._commit_impl(self._connection())
        for work in works:
            try:
                work.flush()
            except Exception:
                logger.exception("after-commit work failed to start; the transaction is committed, nothing is lost")

    def _set_savepoint(self, name: str | None = None) -> str:
        connection_class: Any = Connection
        named: str = connection_class._savepoint_impl(self._connection(), name)
        self._savepoints[named] = {work: work.checkpoint() for work in self._works}
        return named

    def _rolled_back_to(self, _connection: Connection, name: str, _context: None) -> None:
        """Work that was added after the savepoint was set is emptied."""
        saved = self._savepoints.get(name, {})
        for work, nothing in self._works.items():
            saved.get(work, nothing)()

    def _rolled_back(self, _connection: Connection) -> None:
        self._forget()

    def _forget(self) -> None:
        self._works.clear()
        self._savepoints.clear()


def watch(connection: Connection) -> Watch:
    """The watch on this connection. All clients share it."""
    found: Watch | None = connection.__dict__.get(_ATTRIBUTE)
    if found is None:
        found = Watch(connection)
        setattr(connection, _ATTRIBUTE, found)
    return found
