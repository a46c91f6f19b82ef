"""Jobs in a SQLite file, through the standard library's `sqlite3`.

Several processes may share the file. The factories do no I/O: the first use opens the file and
creates the tables. `SqliteProvider` and `AsyncSqliteProvider` run `queuert.adapters.sql`
statements: wrap a provider to log them.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.drivers.sync import SqliteProvider
from queuert.adapters.sqlite.drivers.threaded import AsyncSqliteProvider
from queuert.adapters.sqlite.hub import SqliteHub
from queuert.adapters.sqlite.operations import SqliteOperations
from queuert.adapters.sqlite.operations.base import Clock
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
    """Storage in a SQLite file, for an async client.

    Args:
        path: The file. It is created if it does not exist.
        table_prefix: The prefix of table names (default: "queuert_"). Adapters with different
            prefixes do not see each other's jobs.
        busy_timeout: How long to wait for the write lock, in seconds (default: 5).
        clock: Replaces the host's clock, for tests (default: none).
        hub: The `SqliteHub` of the notify adapter. With it, the hub can tell commits of this
            process from those of other processes (default: none).
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
    """`sqlite_state` with aiosqlite: transactions run on its connections, and these can be joined.

    Plain `def` handlers, in their threads, get connections of `sqlite3`.

    Args:
        path: The file. It is created if it does not exist.
        table_prefix: The prefix of table names (default: "queuert_"). Adapters with different
            prefixes do not see each other's jobs.
        busy_timeout: How long to wait for the write lock, in seconds (default: 5).
        clock: Replaces the host's clock, for tests (default: none).
        hub: The `SqliteHub` of the notify adapter. With it, the hub can tell commits of this
            process from those of other processes (default: none).
    """
    from queuert.adapters.sqlite.drivers.aiosqlite import AiosqliteProvider

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
    """Storage in a SQLite file, for a sync client.

    Args:
        path: The file. It is created if it does not exist.
        table_prefix: The prefix of table names (default: "queuert_"). Adapters with different
            prefixes do not see each other's jobs.
        busy_timeout: How long to wait for the write lock, in seconds (default: 5).
        clock: Replaces the host's clock, for tests (default: none).
        hub: The `SqliteHub` of the notify adapter. With it, the hub can tell commits of this
            process from those of other processes (default: none).
    """
    return SyncStateAdapter(SqliteOperations(table_prefix, clock), SqliteProvider(Database(path, busy_timeout, hub)))
