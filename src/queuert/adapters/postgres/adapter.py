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
    """Storage in PostgreSQL with psycopg 3, for an async client.

    With a URL, plain `def` handlers get sync connections to the same database.

    Args:
        source: A URL, an `AsyncConnectionPool` or an `AsyncConnection`. What you pass stays open.
        schema: The schema of the tables (default: "public").
        table_prefix: The prefix of table names (default: "queuert_").
        prepare: Use prepared statements (default: True). Set it to False for PgBouncer in
            transaction mode.
        pool_size: With a URL, how many connections the pool may open (default: 10).
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
    """Storage in PostgreSQL with psycopg 3, for a sync client.

    Args:
        source: A URL, a `ConnectionPool` or a `Connection`. What you pass is not closed.
        schema: The schema of the tables (default: "public").
        table_prefix: The prefix of table names (default: "queuert_").
        prepare: Use prepared statements (default: True). Set it to False for PgBouncer in
            transaction mode.
        pool_size: With a URL, how many connections the pool may open (default: 10).
    """
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
    """Storage in PostgreSQL with asyncpg, for an async client.

    asyncpg has no sync connections, so plain `def` handlers cannot open transactions.

    Args:
        source: A URL, a `Pool` or a `Connection`. What you pass is not closed.
        schema: The schema of the tables (default: "public").
        table_prefix: The prefix of table names (default: "queuert_").
        prepare: Use prepared statements (default: True). Set it to False for PgBouncer in
            transaction mode.
        pool_size: With a URL, how many connections the pool may open (default: 10).
    """
    from queuert.adapters.postgres.drivers.asyncpg import AsyncpgProvider

    provider: Any = AsyncpgProvider(source, prepare=prepare, max_size=pool_size)
    return StateAdapter(PostgresOperations(schema, table_prefix), provider)


class NotifyOptions(TypedDict, total=False):
    """The keywords of `psycopg_notify` and `asyncpg_notify`, which explain them."""

    listen_url: str
    schema: str
    table_prefix: str
    channel_prefix: str | None
    prepare: bool


def psycopg_notify(
    source: str | AsyncConnectionPool[Any] | AsyncConnection[Any] | Storage, **options: Unpack[NotifyOptions]
) -> BroadcastNotify:
    """Notifications through PostgreSQL with psycopg 3.

    Args:
        source: Where to publish: a URL, an `AsyncConnectionPool`, an `AsyncConnection`, or the
            storage provider of a client.
        listen_url: The URL to connect to for listening, which needs a connection of its own
            (default: `source`, if that is a URL).
        schema: The client's `schema` (default: "public"). Channels are named after it.
        table_prefix: The client's `table_prefix` (default: "queuert_"). Channels are named after
            it.
        channel_prefix: The prefix of channel names (default: made of schema and table prefix).
        prepare: Use prepared statements in the pool for a URL (default: True).
    """
    from queuert.adapters.postgres.notify.psycopg import PsycopgChannels

    return _notify(PsycopgChannels, source, options)


def asyncpg_notify(
    source: str | asyncpg.Pool[Any] | asyncpg.Connection[Any] | Storage, **options: Unpack[NotifyOptions]
) -> BroadcastNotify:
    """Notifications through PostgreSQL with asyncpg.

    Args:
        source: Where to publish: a URL, a `Pool`, a `Connection`, or a client's storage provider.
        listen_url: The URL to connect to for listening, which needs a connection of its own
            (default: `source`, if that is a URL).
        schema: The client's `schema` (default: "public"). Channels are named after it.
        table_prefix: The client's `table_prefix` (default: "queuert_"). Channels are named after
            it.
        channel_prefix: The prefix of channel names (default: made of schema and table prefix).
        prepare: Use prepared statements in the pool for a URL (default: True).
    """
    from queuert.adapters.postgres.notify.asyncpg import AsyncpgChannels

    return _notify(AsyncpgChannels, source, options)


def _notify(channels: type[PostgresChannels], source: Any, options: NotifyOptions) -> BroadcastNotify:
    unknown = sorted(set(options) - NotifyOptions.__annotations__.keys())
    if unknown:
        raise InvalidArgument(
            f"there is no option {', '.join(unknown)}: use {', '.join(NotifyOptions.__annotations__)}"
        )
    url, prefix = options.get("listen_url", source), options.get("channel_prefix")
    if not isinstance(url, str):
        raise InvalidArgument("listening needs a connection of its own: give listen_url=, the URL to connect to")
    channels.check_url(url)
    if prefix is None:
        prefix = default_prefix(options.get("schema", DEFAULT_SCHEMA), options.get("table_prefix", DEFAULT_PREFIX))

    def make() -> PostgresChannels:
        if hasattr(source, "in_transaction"):  # a storage provider
            return channels(url, source)
        return channels(url, channels.storage(source, prepare=options.get("prepare", True)), owned=True)

    if not isinstance(source, str):
        make()  # a wrong source is an error now, not later
    return BroadcastNotify(make, prefix=check_prefix(prefix), separator="")
