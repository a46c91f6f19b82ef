"""State in PostgreSQL: operations and a provider for one of the drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuert.adapters.postgres.operations import PostgresOperations
from queuert.ports.state import StateAdapter, SyncStateAdapter

if TYPE_CHECKING:
    import asyncpg
    from psycopg import AsyncConnection, Connection
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

DEFAULT_SCHEMA = "public"
DEFAULT_PREFIX = "queuert_"


def psycopg_state(
    source: str | AsyncConnectionPool[Any] | AsyncConnection[Any],
    *,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    prepare: bool = True,
) -> StateAdapter[AsyncConnection[Any]]:
    """For an async client with psycopg 3. `source` is a URL, a pool of yours, or one connection.

    From a URL, plain `def` handlers get sync connections to the same database.
    """
    from queuert.adapters.postgres.psycopg_provider import PsycopgProvider
    from queuert.adapters.postgres.psycopg_sync_provider import PsycopgSyncProvider

    sync: Any = PsycopgSyncProvider(source, prepare=prepare) if isinstance(source, str) else None
    return StateAdapter(PostgresOperations(schema, table_prefix), PsycopgProvider(source, prepare=prepare), sync)


def sync_psycopg_state(
    source: str | ConnectionPool[Any] | Connection[Any],
    *,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    prepare: bool = True,
) -> SyncStateAdapter[Connection[Any]]:
    """For a sync client with psycopg 3."""
    from queuert.adapters.postgres.psycopg_sync_provider import PsycopgSyncProvider

    return SyncStateAdapter(PostgresOperations(schema, table_prefix), PsycopgSyncProvider(source, prepare=prepare))


def asyncpg_state(
    source: str | asyncpg.Pool[Any] | asyncpg.Connection[Any],
    *,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    prepare: bool = True,
) -> StateAdapter[asyncpg.Connection[Any]]:
    """For an async client with asyncpg. It has no sync counterpart: plain `def` handlers cannot open transactions."""
    from queuert.adapters.postgres.asyncpg_provider import AsyncpgProvider

    provider: Any = AsyncpgProvider(source, prepare=prepare)
    return StateAdapter(PostgresOperations(schema, table_prefix), provider)
