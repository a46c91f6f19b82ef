"""From SQLAlchemy's engines and session makers to clients."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, overload

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import SingletonThreadPool, StaticPool
from typing_extensions import Unpack

from queuert.adapters.postgres.adapter import DEFAULT_PREFIX, DEFAULT_SCHEMA, sync_psycopg_notify
from queuert.adapters.postgres.notify.channels import Channels, default_prefix
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.sqlalchemy.async_provider import AsyncEngineAlone, AsyncSqlAlchemyProvider
from queuert.adapters.sqlalchemy.core import Core
from queuert.adapters.sqlalchemy.driver import Driver
from queuert.adapters.sqlalchemy.provider import EngineAlone, SqlAlchemyProvider
from queuert.adapters.sqlite import AsyncSqliteProvider, SqliteOperations, SqliteProvider
from queuert.adapters.sqlite.connecting import Database
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.jobs.registry import JobsItem, Registry
from queuert.model import seconds
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter
from queuert.ports.provider import SyncProvider
from queuert.ports.state import StateAdapter, StateOperations, SyncStateAdapter
from queuert.wiring import brokers
from queuert.wiring.embedded import sqlite_hub
from queuert.wiring.options import (
    POSTGRES_ONLY,
    ClientOptions,
    check_names,
    client_options,
    hub_for,
    refuse,
    sync_within_process,
    within_process,
)
from queuert.wiring.postgres import require

AS = TypeVar("AS", bound=AsyncSession)
S = TypeVar("S", bound=Session)

_ASYNC = "an AsyncEngine of SQLAlchemy, or an async_sessionmaker that is bound to one"
_SYNC = "an Engine of SQLAlchemy, or a sessionmaker that is bound to one"


@overload
def connect(
    source: async_sessionmaker[AS],
    *,
    jobs: Iterable[JobsItem],
    sync: sessionmaker[Any] | None = None,
    **options: Unpack[ClientOptions],
) -> Client[AS]: ...
@overload
def connect(
    source: AsyncEngine, *, jobs: Iterable[JobsItem], sync: Engine | None = None, **options: Unpack[ClientOptions]
) -> Client[AsyncConnection]: ...
def connect(
    source: Any, *, jobs: Iterable[JobsItem], sync: Any = None, **options: Unpack[ClientOptions]
) -> Client[Any]:
    """A client whose transactions are those of SQLAlchemy's async sessions or connections.

    Given an `async_sessionmaker`, transactions run on its sessions: `client.start(session, …)`, and `tx.connection` in
    handlers is a session. Given an `AsyncEngine`, they run on its connections. The engine stays yours, and open. `sync`
    is a sync `sessionmaker` or `Engine` for the same database, for the transactions of plain `def` handlers. The
    keywords are those of `queuert.connect`, without `prepare`, which is for the engine to say.
    """
    settings = _settings(options)
    engine = async_engine_of(source)
    registry = Registry(jobs, codecs=options.get("codecs", ()))
    channel = brokers.broker(options)
    left = brokers.without(channel, options)
    target = Target(engine.sync_engine, left)
    state = StateAdapter(target.operations(), target.async_provider(source, engine), _sync_provider(sync, left))
    return Client(state, channel or target.notify(state), registry, **settings)


@overload
def connect_sync(
    source: sessionmaker[S], *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]
) -> SyncClient[S]: ...
@overload
def connect_sync(
    source: Engine, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]
) -> SyncClient[Connection]: ...
def connect_sync(source: Any, *, jobs: Iterable[JobsItem], **options: Unpack[ClientOptions]) -> SyncClient[Any]:
    """`connect` for sync sessions (given a `sessionmaker`) or connections (given an `Engine`)."""
    settings = _settings(options)
    engine = engine_of(source)
    registry = Registry(jobs, codecs=options.get("codecs", ()))
    channel = brokers.sync_broker(options)
    target = Target(engine, brokers.without(channel, options))
    state = SyncStateAdapter(target.operations(), target.sync_provider(source))
    return SyncClient(state, channel or target.sync_notify(), registry, **settings)


class Target:
    """An engine's database, with the options that go with it."""

    def __init__(self, engine: Engine, options: ClientOptions) -> None:
        self.engine = engine
        self.prefix = options.get("table_prefix", DEFAULT_PREFIX)
        self.is_postgres = engine.dialect.name == "postgresql"
        names = ("postgres" if self.is_postgres else "sqlite", "in-process", None)
        self._notify = options.get("notify", names[0])
        if self._notify not in names:
            known = ", ".join(repr(name) for name in names if name)
            raise InvalidArgument(f"here notify must be {known}, a broker's URL or None, got {self._notify!r}")
        self._listen_url = options.get("listen_url", _plain(engine.url))
        if self.is_postgres:
            refuse(options, ("busy_timeout",), "is for SQLite")
            refuse(options, ("prepare",), "is for the engine to say, in its connect_args")
            self.schema = options.get("schema", DEFAULT_SCHEMA)
            self._hub = hub_for(f"{self._listen_url}#{self.schema}.{self.prefix}")
        else:
            refuse(options, POSTGRES_ONLY, "is for PostgreSQL")
            path = _sqlite_path(engine)
            watched = sqlite_hub(path, self.prefix) if self._notify == "sqlite" else None
            self._hub = watched or hub_for(f"{Path(path).absolute()}#{self.prefix}")
            self.database = Database(path, seconds(options.get("busy_timeout", 5.0), "busy_timeout"), watched)

    def operations(self) -> StateOperations:
        return PostgresOperations(self.schema, self.prefix) if self.is_postgres else SqliteOperations(self.prefix)

    def driver(self) -> Driver:
        name = self.engine.dialect.driver
        if self.is_postgres and name in ("psycopg", "psycopg_async"):
            from queuert.adapters.sqlalchemy.drivers.psycopg import PsycopgDriver

            return PsycopgDriver()
        if self.is_postgres and name == "asyncpg":
            from queuert.adapters.sqlalchemy.drivers.asyncpg import AsyncpgDriver

            return AsyncpgDriver()
        if not self.is_postgres and name in ("pysqlite", "aiosqlite"):
            from queuert.adapters.sqlalchemy.drivers.sqlite import SqliteDriver

            return SqliteDriver(self.database)
        raise InvalidArgument(
            f"SQLAlchemy's driver {self.engine.dialect.name}+{name} is not supported: use postgresql+psycopg, "
            "postgresql+asyncpg, sqlite+pysqlite or sqlite+aiosqlite"
        )

    def async_provider(self, source: Any, engine: AsyncEngine) -> AsyncSqlAlchemyProvider[Any]:
        core = Core(self.engine, self.driver())
        if self.is_postgres:
            return AsyncSqlAlchemyProvider(source, core, AsyncEngineAlone(engine, core))
        alone = AsyncSqliteProvider(self.database)
        return AsyncSqlAlchemyProvider(source, core, alone, alone.lock)

    def sync_provider(self, source: Any) -> SqlAlchemyProvider[Any]:
        core = Core(self.engine, self.driver())
        alone = EngineAlone(self.engine, core) if self.is_postgres else SqliteProvider(self.database)
        return SqlAlchemyProvider(source, core, alone)

    def notify(self, state: StateAdapter[Any]) -> NotifyAdapter:
        if self._notify != "postgres":
            return within_process(self._hub if self._notify else None)
        from queuert.adapters.postgres.notify.adapter import PostgresNotify

        channels = Channels(default_prefix(self.schema, self.prefix))
        if self.engine.dialect.driver == "asyncpg":
            from queuert.adapters.postgres.notify.asyncpg import asyncpg_link as link
        else:
            from queuert.adapters.postgres.notify.psycopg import psycopg_link as link
        return PostgresNotify(state.provider, link(self._listen_url, channels), channels)

    def sync_notify(self) -> SyncNotifyAdapter:
        if self._notify != "postgres":
            return sync_within_process(self._hub if self._notify else None)
        require("psycopg")
        # With connections of its own: it is used at the moment of a commit, when the engine's may all be in use,
        # the one that commits among them.
        return sync_psycopg_notify(self._listen_url, schema=self.schema, table_prefix=self.prefix)


def async_engine_of(source: Any) -> AsyncEngine:
    if isinstance(source, Engine | sessionmaker):
        raise _not_a_source(source, _ASYNC, ": that is for connect_sync()")
    bind: Any = _bind_of(source, async_sessionmaker)
    if not isinstance(bind, AsyncEngine):
        raise _not_a_source(source, _ASYNC)
    return bind


def engine_of(source: Any) -> Engine:
    if isinstance(source, AsyncEngine | async_sessionmaker):
        raise _not_a_source(source, _SYNC, ": that is for connect()")
    bind: Any = _bind_of(source, sessionmaker)
    if not isinstance(bind, Engine):
        raise _not_a_source(source, _SYNC)
    return _sync_only(bind)


def _bind_of(source: Any, maker: Any) -> Any:
    return source().bind if isinstance(source, maker) else source


def _sync_only(engine: Engine) -> Engine:
    if engine.dialect.is_async:
        raise InvalidArgument("this Engine belongs to an AsyncEngine: give that, or one for a sync driver")
    return engine


def _sync_provider(source: Any, options: ClientOptions) -> SyncProvider[Any] | None:
    return None if source is None else Target(engine_of(source), options).sync_provider(source)


def _settings(options: ClientOptions) -> dict[str, Any]:
    check_names(options)
    return client_options(options)


def _not_a_source(source: Any, wanted: str, hint: str = "") -> InvalidArgument:
    return InvalidArgument(f"expected {wanted}, got {type(source).__name__}{hint}")


def _plain(url: URL) -> str:
    """As the PostgreSQL drivers take it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _sqlite_path(engine: Engine) -> str:
    if engine.dialect.name != "sqlite":
        raise InvalidArgument(f"jobs live in PostgreSQL or SQLite, and this engine is for {engine.dialect.name}")
    path = engine.url.database
    if not path or path == ":memory:" or path.startswith("file:"):
        raise InvalidArgument(
            "a SQLite database in memory is one for each connection, and a file: URI may be one: jobs need a plain "
            "file, as in sqlite:///app.db"
        )
    if isinstance(engine.pool, StaticPool | SingletonThreadPool):
        raise InvalidArgument(
            f"{type(engine.pool).__name__} gives one connection to several users at once, who would share one "
            "transaction: leave out poolclass=, or use QueuePool or NullPool"
        )
    return path
