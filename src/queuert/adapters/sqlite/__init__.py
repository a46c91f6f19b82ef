"""Jobs in a SQLite file, through the standard library's `sqlite3`.

Several processes may share the file. Opening it and making its tables is left to the first use; the factories do no
I/O. `SqliteProvider` and `AsyncSqliteProvider` carry out `queuert.sql` statements: wrap one to see what is done.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuert.adapters.sqlite.async_provider import AsyncSqliteProvider
from queuert.adapters.sqlite.connecting import Database
from queuert.adapters.sqlite.hub import SqliteHub
from queuert.adapters.sqlite.operations import SqliteOperations
from queuert.adapters.sqlite.provider import SqliteProvider
from queuert.adapters.sqlite.store import Clock
from queuert.ports.state import StateAdapter, SyncStateAdapter

if TYPE_CHECKING:
    import aiosqlite

__all__ = [
    "AsyncSqliteProvider",
    "SqliteHub",
    "SqliteOperations",
    "SqliteProvider",
    "aiosqlite_state",
    "sqlite_state",
    "sync_sqlite_state",
]


def sqlite_state(
    path: str | Path,
    *,
    table_prefix: str = "queuert_",
    busy_timeout: float = 5.0,
    clock: Clock | None = None,
    hub: SqliteHub | None = None,
) -> StateAdapter[sqlite3.Connection]:
    """State in a SQLite file for an async client. `busy_timeout`: seconds to wait for the write lock.

    Adapters with different prefixes do not see each other's jobs. `clock` stands in for the host's clock. `hub`: a
    `SqliteHub`, the one of the notify adapter. It then knows which commits are ours, and which another process's.
    """
    database = Database(path, busy_timeout, hub)
    operations = SqliteOperations(table_prefix, clock)
    return StateAdapter(operations, AsyncSqliteProvider(database), SqliteProvider(database))


def aiosqlite_state(
    path: str | Path,
    *,
    table_prefix: str = "queuert_",
    busy_timeout: float = 5.0,
    clock: Clock | None = None,
    hub: SqliteHub | None = None,
) -> StateAdapter[aiosqlite.Connection]:
    """`sqlite_state` with aiosqlite: its connections are what transactions run on, and what can be joined.

    Plain `def` handlers, in their threads, get connections of `sqlite3`.
    """
    from queuert.adapters.sqlite.aiosqlite_provider import AiosqliteProvider

    database = Database(path, busy_timeout, hub)
    sync: Any = SqliteProvider(database)
    return StateAdapter(SqliteOperations(table_prefix, clock), AiosqliteProvider(database), sync)


def sync_sqlite_state(
    path: str | Path,
    *,
    table_prefix: str = "queuert_",
    busy_timeout: float = 5.0,
    clock: Clock | None = None,
    hub: SqliteHub | None = None,
) -> SyncStateAdapter[sqlite3.Connection]:
    """State in a SQLite file for a sync client: see `sqlite_state`."""
    return SyncStateAdapter(SqliteOperations(table_prefix, clock), SqliteProvider(Database(path, busy_timeout, hub)))
