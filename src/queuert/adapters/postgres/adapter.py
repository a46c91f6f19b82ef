"""State and notifications in PostgreSQL: operations, channels, and a provider for one of the
drivers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from typing_extensions import Unpack

from queuert.adapters.broadcast import BroadcastNotify
from queuert.adapters.postgres.notify.channels import check_prefix, default_prefix
from queuert.adapters.postgres.notify.provider import PostgresChannels, Storage
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.errors import InvalidArgument
from queuert.ports.state import StateAdapter, SyncStateAdapter

if TYPE_CHECKING:
    import asyncpg
    from psycopg import AsyncConnection, Connection
    from psycopg_pool import AsyncConnectionPool, ConnectionPool

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

    From a URL, there is a pool of our own of `pool_size`, and plain `def` handlers get sync
    connections to the same database.
    """
    from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider, PsycopgSyncProvider

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
    from queuert.adapters.postgres.drivers.psycopg import PsycopgSyncProvider

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
    """For an async client with asyncpg.

    It has no sync counterpart: plain `def` handlers cannot open transactions.
    """
    from queuert.adapters.postgres.drivers.asyncpg import AsyncpgProvider

    provider: Any = AsyncpgProvider(source, prepare=prepare, max_size=pool_size)
    return StateAdapter(PostgresOperations(schema, table_prefix), provider)


class NotifyOptions(TypedDict, total=False):
    """The keywords of `psycopg_notify` and `asyncpg_notify`."""

    listen_url: str
    """Where to connect for listening, which needs a connection of its own. Default: `source`, if
    that is a URL."""
    schema: str
    table_prefix: str
    """Channels are named after schema and table prefix, unless `channel_prefix` is given."""
    channel_prefix: str | None
    prepare: bool
    """Use prepared statements, in a pool of our own (default: True)."""


def psycopg_notify(
    source: str | AsyncConnectionPool[Any] | AsyncConnection[Any] | Storage, **options: Unpack[NotifyOptions]
) -> BroadcastNotify:
    """LISTEN and NOTIFY with psycopg 3.

    Publishing goes through `source`. `source` may also be the storage provider of a sync client.
    """
    from queuert.adapters.postgres.notify.psycopg import PsycopgChannels

    return _notify(PsycopgChannels, source, options)


def asyncpg_notify(
    source: str | asyncpg.Pool[Any] | asyncpg.Connection[Any] | Storage, **options: Unpack[NotifyOptions]
) -> BroadcastNotify:
    """LISTEN and NOTIFY with asyncpg. Publishing goes through `source`."""
    from queuert.adapters.postgres.notify.asyncpg import AsyncpgChannels

    return _notify(AsyncpgChannels, source, options)


def _notify(channels: type[PostgresChannels], source: Any, options: NotifyOptions) -> BroadcastNotify:
    url, prefix = options.get("listen_url", source), options.get("channel_prefix")
    if not isinstance(url, str):
        raise InvalidArgument("listening needs a connection of its own: give listen_url=, the URL to connect to")
    if prefix is None:
        prefix = default_prefix(options.get("schema", DEFAULT_SCHEMA), options.get("table_prefix", DEFAULT_PREFIX))

    def make() -> PostgresChannels:
        if hasattr(source, "in_transaction"):  # a storage provider
            return channels(url, source)
        return channels(url, channels.storage(source, prepare=options.get("prepare", True)), owned=True)

    if not isinstance(source, str):
        make()  # a wrong source is an error now, not later
    return BroadcastNotify(make, prefix=check_prefix(prefix), separator="")
