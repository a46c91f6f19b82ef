"""Clients made from SQLAlchemy's engines and session makers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, cast, overload

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import SingletonThreadPool, StaticPool
from typing_extensions import Unpack

from queuert.adapters.postgres.adapter import DEFAULT_PREFIX, DEFAULT_SCHEMA, asyncpg_notify, psycopg_notify
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.postgres.virtual_time import PostgresInVirtualTime
from queuert.adapters.sqlalchemy.dialect import Dialect
from queuert.adapters.sqlalchemy.driver import SqlAlchemyDriver
from queuert.adapters.sqlalchemy.provider import AsyncSqlAlchemyProvider, SqlAlchemyProvider
from queuert.adapters.sqlite import AsyncSqliteProvider, SqliteOperations, SqliteProvider
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.virtual_time import SqliteInVirtualTime
from queuert.base.arguments import seconds
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.jobs.registry import JobsItem, Registry
from queuert.ports.notify import NotifyAdapter
from queuert.ports.provider import AsyncProvider, SyncProvider
from queuert.ports.state import StateAdapter, StateOperations, SyncStateAdapter
from queuert.wiring import brokers
from queuert.wiring.embedded import sqlite_hub
from queuert.wiring.options import (
    POSTGRES_ONLY,
    ClientOptions,
    EngineOptions,
    channel_name,
    check_names,
    client_options,
    clock_of,
    hub_for,
    refuse,
    within_process,
)
from queuert.wiring.postgres import require

AS = TypeVar("AS", bound=AsyncSession)
S = TypeVar("S", bound=Session)

_ASYNC = "a SQLAlchemy AsyncEngine, or an async_sessionmaker that is bound to one"
_SYNC = "a SQLAlchemy Engine, or a sessionmaker that is bound to one"


@overload
def connect(
    source: async_sessionmaker[AS],
    *,
    jobs: Iterable[JobsItem],
    sync: sessionmaker[Any] | None = None,
    **options: Unpack[EngineOptions],
) -> Client[AS]: ...
@overload
def connect(
    source: AsyncEngine, *, jobs: Iterable[JobsItem], sync: Engine | None = None, **options: Unpack[EngineOptions]
) -> Client[AsyncConnection]: ...
def connect(
    source: Any, *, jobs: Iterable[JobsItem], sync: Any = None, **options: Unpack[EngineOptions]
) -> Client[Any]:
    """A client whose transactions run on SQLAlchemy's async sessions or connections.

    You may pass a session or connection itself as the transaction: `client.start(session, …)`. The
    client does not close the engine.

    Args:
        source: An `async_sessionmaker`: transactions run on its sessions, and `tx.connection` is a
            session. Or an `AsyncEngine`: transactions run on its connections.
        jobs: Job classes, `JobTypes`, or modules that define job classes. The types that these
            continue with or wait for are included.
        sync: A sync `sessionmaker` or `Engine` for the same database, for the transactions of plain
            `def` handlers (default: they cannot open any).
        codecs: Codecs for types that msgspec does not know (default: none).
        notify: How workers and waiters are woken early. "postgres" or "sqlite" uses that database
            (the default there). "in-process" reaches only this process. A URL uses a broker:
            redis://host, nats://host or postgresql://host/database. A `NotifyProvider`, or a
            function that makes one, uses a broker of your own. None turns notifications off:
            everything polls.
        notify_prefix: Brokers: the prefix of channels and keys (default: "queuert"). Databases that
            share a broker need different prefixes.
        notify_bucket: NATS: the JetStream key-value bucket for wake hints. It is created if it does
            not exist (default: no wake hints).
        poll_interval: How often `wait` reads the chain if no notification arrives, as a timedelta
            or in seconds (default: 1).
        migrate: Create or update the tables when the `with` block begins (default: True).
        table_prefix: The prefix of table names (default: "queuert_").
        busy_timeout: SQLite: how long to wait for the write lock, as a timedelta or in seconds
            (default: 5).
        schema: PostgreSQL: the schema of the tables (default: "public").
        listen_url: PostgreSQL: a direct URL for LISTEN, if the engine leads to PgBouncer.
        clock: For tests: a `queuert.testing.Clock`, which the time of the database then follows
            (default: the real time). It needs tables of its own, by `table_prefix`, `schema`, or a
            new file. Tables that were made without a clock are refused.
        observers: Objects that receive events: see `Observer` (default: none).
        keep: How long ended chains are kept if their class sets no time: see `Keep` (default:
            completed ones 7 days, others 90 days).
        announce: "background" (the default) notifies workers without the caller that has committed.
            "wait" lets it wait until that is done.
        statistics: Count what happens to jobs, for `client.history` (default: True). Set it to the
            same in all processes.
        generate_id: Makes job ids (default: UUIDv7). Ids should increase with time, because
            listings are sorted by id.
        validate_id: Returns False or raises `InvalidJobId` for an id that it does not accept
            (default: any UUID). Generated ids are checked, too.
    """
    given = _checked(options)
    engine = async_engine_of(source)
    registry = Registry(jobs, codecs=options.get("codecs", ()), keep=options.get("keep"))
    channel = brokers.broker(given)
    left = brokers.without(channel, given)
    target = Target(engine.sync_engine, left)
    state = StateAdapter(target.operations(), target.async_provider(source, engine), _sync_provider(sync, left))
    state.clock = target.clock
    return Client(state, channel or target.notify(state.provider), registry, **client_options(given))


@overload
def connect_sync(
    source: sessionmaker[S], *, jobs: Iterable[JobsItem], **options: Unpack[EngineOptions]
) -> SyncClient[S]: ...
@overload
def connect_sync(
    source: Engine, *, jobs: Iterable[JobsItem], **options: Unpack[EngineOptions]
) -> SyncClient[Connection]: ...
def connect_sync(source: Any, *, jobs: Iterable[JobsItem], **options: Unpack[EngineOptions]) -> SyncClient[Any]:
    """A sync client whose transactions are those of SQLAlchemy's sessions or connections.

    You may pass a session or connection itself as the transaction: `client.start(session, …)`. The
    client does not close the engine.

    Args:
        source: A `sessionmaker`: transactions run on its sessions, and `tx.connection` is a
            session. Or an `Engine`: transactions run on its connections.
        jobs: Job classes, `JobTypes`, or modules that define job classes. The types that these
            continue with or wait for are included.
        codecs: Codecs for types that msgspec does not know (default: none).
        notify: How workers and waiters are woken early. "postgres" or "sqlite" uses that database
            (the default there). "in-process" reaches only this process. A URL uses a broker:
            redis://host, nats://host or postgresql://host/database. A `NotifyProvider`, or a
            function that makes one, uses a broker of your own. None turns notifications off:
            everything polls.
        notify_prefix: Brokers: the prefix of channels and keys (default: "queuert"). Databases that
            share a broker need different prefixes.
        notify_bucket: NATS: the JetStream key-value bucket for wake hints. It is created if it does
            not exist (default: no wake hints).
        poll_interval: How often `wait` reads the chain if no notification arrives, as a timedelta
            or in seconds (default: 1).
        migrate: Create or update the tables when the `with` block begins (default: True).
        table_prefix: The prefix of table names (default: "queuert_").
        busy_timeout: SQLite: how long to wait for the write lock, as a timedelta or in seconds
            (default: 5).
        schema: PostgreSQL: the schema of the tables (default: "public").
        listen_url: PostgreSQL: a direct URL for LISTEN, if the engine leads to PgBouncer.
        clock: For tests: a `queuert.testing.Clock`, which the time of the database then follows
            (default: the real time). It needs tables of its own, by `table_prefix`, `schema`, or a
            new file. Tables that were made without a clock are refused.
        observers: Objects that receive events: see `Observer` (default: none).
        keep: How long ended chains are kept if their class sets no time: see `Keep` (default:
            completed ones 7 days, others 90 days).
        announce: "background" (the default) notifies workers without the caller that has committed.
            "wait" lets it wait until that is done.
        statistics: Count what happens to jobs, for `client.history` (default: True). Set it to the
            same in all processes.
        generate_id: Makes job ids (default: UUIDv7). Ids should increase with time, because
            listings are sorted by id.
        validate_id: Returns False or raises `InvalidJobId` for an id that it does not accept
            (default: any UUID). Generated ids are checked, too.
    """
    given = _checked(options)
    engine = engine_of(source)
    registry = Registry(jobs, codecs=options.get("codecs", ()), keep=options.get("keep"))
    channel = brokers.broker(given)
    target = Target(engine, brokers.without(channel, given))
    state = SyncStateAdapter(target.operations(), target.sync_provider(source))
    state.clock = target.clock
    # It publishes on its own connections: at the moment of a commit, all connections of the engine
    # may be in use, including the one that commits.
    return SyncClient(state, channel or target.notify(None), registry, **client_options(given))


class Target:
    """An engine's database and its options."""

    def __init__(self, engine: Engine, options: ClientOptions) -> None:
        self.engine = engine
        self.prefix = options.get("table_prefix", DEFAULT_PREFIX)
        self.is_postgres = engine.dialect.name == "postgresql"
        self.clock = clock_of(options)
        self._notify = channel_name(options, "postgres" if self.is_postgres else "sqlite", "in-process")
        self._listen_url = options.get("listen_url", _plain(engine.url))
        if self.is_postgres:
            refuse(options, ("busy_timeout",), "is for SQLite")
            refuse(options, ("prepare", "pool_size"), "must be set on the engine")
            self.schema = options.get("schema", DEFAULT_SCHEMA)
            self._hub = hub_for(f"{self._listen_url}#{self.schema}.{self.prefix}")
        else:
            refuse(options, POSTGRES_ONLY, "is for PostgreSQL")
            self.path = path = _sqlite_path(engine)
            watched = sqlite_hub(path, self.prefix) if self._notify == "sqlite" else None
            self._hub = watched or hub_for(f"{Path(path).absolute()}#{self.prefix}")
            self.database = Database(path, seconds(options.get("busy_timeout", 5.0), "busy_timeout"), watched)

    def operations(self) -> StateOperations:
        if self.clock is None:
            return PostgresOperations(self.schema, self.prefix) if self.is_postgres else SqliteOperations(self.prefix)
        if self.is_postgres:
            return PostgresInVirtualTime(self.schema, self.prefix, self.clock, self._listen_url)
        return SqliteInVirtualTime(self.prefix, self.clock, Path(self.path))

    def dialect(self) -> Dialect:
        name = self.engine.dialect.driver
        if self.is_postgres and name in ("psycopg", "psycopg_async"):
            from queuert.adapters.sqlalchemy.dialects.psycopg import PsycopgDialect

            return PsycopgDialect()
        if self.is_postgres and name == "asyncpg":
            from queuert.adapters.sqlalchemy.dialects.asyncpg import AsyncpgDialect

            return AsyncpgDialect()
        if not self.is_postgres and name in ("pysqlite", "aiosqlite"):
            from queuert.adapters.sqlalchemy.dialects.sqlite import SqliteDialect

            return SqliteDialect(self.database)
        raise InvalidArgument(
            f"SQLAlchemy's driver {self.engine.dialect.name}+{name} is not supported: use postgresql+psycopg, "
            "postgresql+asyncpg, sqlite+pysqlite or sqlite+aiosqlite"
        )

    def async_provider(self, source: Any, engine: AsyncEngine) -> AsyncSqlAlchemyProvider:
        if self.is_postgres:
            return AsyncSqlAlchemyProvider(SqlAlchemyDriver(source, engine, self.dialect()))
        alone = AsyncSqliteProvider(self.database)
        return AsyncSqlAlchemyProvider(SqlAlchemyDriver(source, engine, self.dialect(), alone.lock), alone)

    def sync_provider(self, source: Any) -> SqlAlchemyProvider:
        alone = None if self.is_postgres else SqliteProvider(self.database)
        return SqlAlchemyProvider(SqlAlchemyDriver(source, self.engine, self.dialect()), alone)

    def notify(self, provider: AsyncProvider[Any] | None) -> NotifyAdapter:
        """Publishes through the provider; None: on connections of its own."""
        if self._notify != "postgres":
            return within_process(self._hub if self._notify else None)
        if provider is None:
            require("psycopg")
        make: Any = asyncpg_notify if self.engine.dialect.driver == "asyncpg" else psycopg_notify
        notify: NotifyAdapter = make(
            provider or self._listen_url, listen_url=self._listen_url, schema=self.schema, table_prefix=self.prefix
        )
        return notify


def async_engine_of(source: Any) -> AsyncEngine:
    if isinstance(source, Engine | sessionmaker):
        raise _not_a_source(source, _ASYNC, ": use connect_sync() for it")
    bind: Any = _bind_of(source, async_sessionmaker)
    if not isinstance(bind, AsyncEngine):
        raise _not_a_source(source, _ASYNC)
    return bind


def engine_of(source: Any) -> Engine:
    if isinstance(source, AsyncEngine | async_sessionmaker):
        raise _not_a_source(source, _SYNC, ": use connect() for it")
    bind: Any = _bind_of(source, sessionmaker)
    if not isinstance(bind, Engine):
        raise _not_a_source(source, _SYNC)
    return _sync_only(bind)


def _bind_of(source: Any, maker: Any) -> Any:
    return source().bind if isinstance(source, maker) else source


def _sync_only(engine: Engine) -> Engine:
    if engine.dialect.is_async:
        raise InvalidArgument(
            "this Engine belongs to an AsyncEngine: pass the AsyncEngine to connect(), or an Engine with a sync driver"
        )
    return engine


def _sync_provider(source: Any, options: ClientOptions) -> SyncProvider[Any] | None:
    return None if source is None else Target(engine_of(source), options).sync_provider(source)


def _checked(options: EngineOptions) -> ClientOptions:
    check_names(options)
    return cast("ClientOptions", options)


def _not_a_source(source: Any, wanted: str, hint: str = "") -> InvalidArgument:
    return InvalidArgument(f"expected {wanted}, got {type(source).__name__}{hint}")


def _plain(url: URL) -> str:
    """The URL in the form that the PostgreSQL drivers accept."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _sqlite_path(engine: Engine) -> str:
    if engine.dialect.name != "sqlite":
        raise InvalidArgument(
            f"this engine is for {engine.dialect.name}, which is not supported: use PostgreSQL or SQLite"
        )
    path = engine.url.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise InvalidArgument(
            "jobs need a plain SQLite file, as in sqlite:///app.db: in memory (or with a file: URI, which may be in "
            "memory) each connection would have its own database"
        )
    if isinstance(engine.pool, StaticPool | SingletonThreadPool):
        raise InvalidArgument(
            f"with {type(engine.pool).__name__}, several users would share one connection and so one transaction: "
            "leave out poolclass=, or use QueuePool or NullPool"
        )
    return path
