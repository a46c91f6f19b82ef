"""Noticing the end of a root transaction, and the savepoints in it.

SQLAlchemy's own events are not enough. A session's `after_commit` is also called for savepoints,
and too early if the session has joined the transaction of an outer connection. An engine's `commit`
is called before the COMMIT, which may fail, and `rollback` before the ROLLBACK. So we wrap the
methods of the connection that every commit and rollback goes through, and the one that names a
savepoint. They are private. They are the same in 2.0 and 2.1, and the tests run with both versions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from sqlalchemy import Connection

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
        watched._rollback_impl = self._roll_back
        watched._rollback_to_savepoint_impl = self._roll_back_to

    def add(self, work: AfterCommitWork, nothing: Restore) -> None:
        self._works.setdefault(work, nothing)

    def _commit(self) -> None:
        works = self._forget()  # whether it succeeds or not, the transaction is over
        connection = self._connection()
        try:
            _original._commit_impl(connection)
        except Exception:
            # If the connection is lost, the transaction may be committed.
            if connection is not None and not connection.invalidated:
                _call_each([work.rolled_back for work in works])
            raise
        _call_each([work.flush for work in works])

    def _set_savepoint(self, name: str | None = None) -> str:
        named: str = _original._savepoint_impl(self._connection(), name)
        self._savepoints[named] = {work: work.checkpoint() for work in self._works}
        return named

    def _roll_back_to(self, name: str) -> None:
        """Work that was added after the savepoint was set is emptied."""
        try:
            _original._rollback_to_savepoint_impl(self._connection(), name)
        finally:
            saved = self._savepoints.get(name, {})
            _call_each([saved.get(work, nothing) for work, nothing in self._works.items()])

    def _roll_back(self) -> None:
        try:
            _original._rollback_impl(self._connection())
        finally:
            _call_each([work.rolled_back for work in self._forget()])

    def _forget(self) -> list[AfterCommitWork]:
        works = list(self._works)
        self._works.clear()
        self._savepoints.clear()
        return works


_original: Any = Connection


def _call_each(calls: Sequence[Callable[[], object]]) -> None:
    for call in calls:
        try:
            call()
        except Exception:
            logger.exception("work after the end of a transaction failed to start; the transaction has ended")


def watch(connection: Connection) -> Watch:
    """The watch on this connection. All clients share it."""
    found: Watch | None = connection.__dict__.get(_ATTRIBUTE)
    if found is None:
        found = Watch(connection)
        setattr(connection, _ATTRIBUTE, found)
    return found
