"""State and notifications in PostgreSQL: operations, channels, and a provider for one of the drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuert.adapters.postgres.notify.channels import Channels, default_prefix
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.errors import InvalidArgument
from queuert.ports.state import StateAdapter, SyncStateAdapter

if TYPE_CHECKING:
    import asyncpg
    from psycopg import AsyncConnection, Connection
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

    from queuert.adapters.postgres.drivers.asyncpg_provider import AsyncpgProvider
    from queuert.adapters.postgres.drivers.psycopg_provider import PsycopgProvider
    from queuert.adapters.postgres.drivers.psycopg_sync_provider import PsycopgSyncProvider
    from queuert.adapters.postgres.notify.adapter import PostgresNotify
    from queuert.adapters.postgres.notify.sync import SyncPostgresNotify

DEFAULT_SCHEMA = "public"
DEFAULT_PREFIX = "queuert_"
DEFAULT_POOL_SIZE = 10


def psycopg_state(
    source: str | AsyncConnectionPool[Any] | AsyncConnection[Any],
    *,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    prepare: bool = True,
    pool_size: int = DEFAULT_POOL_SIZE,
) -> StateAdapter[AsyncConnection[Any]]:
    """For an async client with psycopg 3. `source` is a URL, a pool of yours, or one connection.

    From a URL, there is a pool of our own of `pool_size`, and plain `def` handlers get sync connections to the same
    database.
    """
    from queuert.adapters.postgres.drivers.psycopg_provider import PsycopgProvider
    from queuert.adapters.postgres.drivers.psycopg_sync_provider import PsycopgSyncProvider

    sync: Any = None
    if isinstance(source, str):
        sync = PsycopgSyncProvider(source, prepare=prepare, max_size=pool_size)
    provider = PsycopgProvider(source, prepare=prepare, max_size=pool_size)
    return StateAdapter(PostgresOperations(schema, table_prefix), provider, sync)


def sync_psycopg_state(
    source: str | ConnectionPool[Any] | Connection[Any],
    *,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    prepare: bool = True,
    pool_size: int = DEFAULT_POOL_SIZE,
) -> SyncStateAdapter[Connection[Any]]:
    """For a sync client with psycopg 3."""
    from queuert.adapters.postgres.drivers.psycopg_sync_provider import PsycopgSyncProvider

    provider = PsycopgSyncProvider(source, prepare=prepare, max_size=pool_size)
    return SyncStateAdapter(PostgresOperations(schema, table_prefix), provider)


def asyncpg_state(
    source: str | asyncpg.Pool[Any] | asyncpg.Connection[Any],
    *,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    prepare: bool = True,
    pool_size: int = DEFAULT_POOL_SIZE,
) -> StateAdapter[asyncpg.Connection[Any]]:
    """For an async client with asyncpg. It has no sync counterpart: plain `def` handlers cannot open transactions."""
    from queuert.adapters.postgres.drivers.asyncpg_provider import AsyncpgProvider

    provider: Any = AsyncpgProvider(source, prepare=prepare, max_size=pool_size)
    return StateAdapter(PostgresOperations(schema, table_prefix), provider)


# Notifications. `source` is a URL, a pool, a connection or a provider: what is published goes through it. Listening
# takes a connection of its own, made from `listen_url`, or from the URL that `source` is. Channels are named after
# schema and table prefix, unless `channel_prefix` says otherwise.


def psycopg_notify(
    source: str | AsyncConnectionPool[Any] | AsyncConnection[Any] | PsycopgProvider,
    *,
    listen_url: str | None = None,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    channel_prefix: str | None = None,
    prepare: bool = True,
) -> PostgresNotify:
    """For an async client with psycopg 3."""
    from queuert.adapters.postgres.drivers.psycopg_provider import PsycopgProvider
    from queuert.adapters.postgres.notify.adapter import PostgresNotify
    from queuert.adapters.postgres.notify.psycopg import psycopg_link

    channels = _channels(schema, table_prefix, channel_prefix)
    link = psycopg_link(_listen_url(source, listen_url), channels)
    if isinstance(source, PsycopgProvider):
        return PostgresNotify(source, link, channels)
    return PostgresNotify(PsycopgProvider(source, prepare=prepare, max_size=2), link, channels, owned=True)


def sync_psycopg_notify(
    source: str | ConnectionPool[Any] | Connection[Any] | PsycopgSyncProvider,
    *,
    listen_url: str | None = None,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    channel_prefix: str | None = None,
    prepare: bool = True,
) -> SyncPostgresNotify:
    """For a sync client with psycopg 3."""
    from queuert.adapters.postgres.drivers.psycopg_sync_provider import PsycopgSyncProvider
    from queuert.adapters.postgres.notify.sync import SyncPostgresNotify

    channels = _channels(schema, table_prefix, channel_prefix)
    url = _listen_url(source, listen_url)
    if isinstance(source, PsycopgSyncProvider):
        return SyncPostgresNotify(source, url, channels)
    return SyncPostgresNotify(PsycopgSyncProvider(source, prepare=prepare, max_size=2), url, channels, owned=True)


def asyncpg_notify(
    source: str | asyncpg.Pool[Any] | asyncpg.Connection[Any] | AsyncpgProvider,
    *,
    listen_url: str | None = None,
    schema: str = DEFAULT_SCHEMA,
    table_prefix: str = DEFAULT_PREFIX,
    channel_prefix: str | None = None,
    prepare: bool = True,
) -> PostgresNotify:
    """For an async client with asyncpg."""
    from queuert.adapters.postgres.drivers.asyncpg_provider import AsyncpgProvider
    from queuert.adapters.postgres.notify.adapter import PostgresNotify
    from queuert.adapters.postgres.notify.asyncpg import asyncpg_link

    channels = _channels(schema, table_prefix, channel_prefix)
    link = asyncpg_link(_listen_url(source, listen_url), channels)
    if isinstance(source, AsyncpgProvider):
        return PostgresNotify(source, link, channels)
    return PostgresNotify(AsyncpgProvider(source, prepare=prepare, max_size=2), link, channels, owned=True)


def _channels(schema: str, table_prefix: str, channel_prefix: str | None) -> Channels:
    return Channels(default_prefix(schema, table_prefix) if channel_prefix is None else channel_prefix)


def _listen_url(source: object, listen_url: str | None) -> str:
    if listen_url is not None:
        return listen_url
    if isinstance(source, str):
        return source
    raise InvalidArgument("listening takes a connection of its own: say with listen_url= where to connect to")
