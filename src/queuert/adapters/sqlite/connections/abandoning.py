"""Ending a transaction by force, from any thread, while user code may be using its connection."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any


class OwnRaw(sqlite3.Connection):
    """A connection that we have opened."""

    abandoned = False
    calls_python = False
    """The user has given it functions that SQLite calls."""
    has_met_bad_text = False
    """A row had text that is not UTF-8."""


def _noting(name: str) -> Callable[..., Any]:
    method = getattr(sqlite3.Connection, name)

    @wraps(method)
    def note(self: OwnRaw, *args: Any, **kwargs: Any) -> Any:
        self.calls_python = True
        return method(self, *args, **kwargs)

    return note


for _name in (
    "create_function",
    "create_aggregate",
    "create_window_function",
    "create_collation",
    "set_authorizer",
    "set_progress_handler",
    "set_trace_callback",
):
    setattr(OwnRaw, _name, _noting(_name))


def abandon(connection: sqlite3.Connection) -> bool:
    """End the transaction by force, from any thread. The connection can only be closed then.

    A statement that is running is interrupted. All others are refused: without a transaction, each
    would commit by itself. Closing the connection here would not be safe, as another thread may be
    using it.
    """
    calls_python = True
    if isinstance(connection, OwnRaw):
        connection.abandoned = True
        calls_python = connection.calls_python
    try:
        connection.interrupt()
        if calls_python:
            threading.Thread(target=_roll_back_later, args=(connection,), daemon=True).start()
        else:
            sqlite3.Connection.set_authorizer(connection, _only_roll_back)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except sqlite3.Error:
        return False
    return True


def _roll_back_later(connection: sqlite3.Connection) -> None:
    """SQLite may be in a call of a Python function just now. `set_authorizer` would wait for its
    end and hold the GIL, which the function needs: a deadlock. These statements wait without the
    GIL.
    """
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA query_only = ON")
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _only_roll_back(action: int, argument: str | None, *_: str | None) -> int:
    allowed = action == sqlite3.SQLITE_TRANSACTION and argument == "ROLLBACK"
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
