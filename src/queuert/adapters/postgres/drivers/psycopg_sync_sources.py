"""Where psycopg's sync connections come from: see `psycopg_sources`, which says the same for an event loop."""

from __future__ import annotations

import threading
from time import monotonic
from typing import Any, Protocol

import psycopg
from psycopg import Connection as PsycopgConnection
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.psycopg_common import (
    IDLE,
    PATIENCE,
    READ_COMMITTED,
    RECONNECT,
    SET_ISOLATION,
    Settings,
    closed,
    is_dead,
    nested,
    not_idle,
    refuse_source,
    status_of,
)

Connection = PsycopgConnection[Any]
Pool = ConnectionPool[Any]
SyncSource = str | Pool | Connection


class Source(Protocol):
    configured: bool
    """Whether its connections are read committed by default, because we have set them so."""
    database: str | None
    """The database's name, once it is known for sure."""

    def take(self) -> Connection: ...

    def give_back(self, connection: Connection) -> None: ...

    def close(self) -> None: ...


def sync_source(source: SyncSource, *, prepare: bool, max_size: int, timeout: float) -> Source:
    if isinstance(source, str):
        return OwnPool(source, prepare=prepare, max_size=max_size, timeout=timeout)
    if isinstance(source, ConnectionPool):
        return GivenPool(source)
    if isinstance(source, PsycopgConnection):  # pyright: ignore[reportUnnecessaryIsInstance]
        return OneConnection(source)
    raise refuse_source(source, "ConnectionPool", "Connection")


class GivenPool:
    """The user's pool, which is his to open and to close."""

    configured = False
    database: str | None = None

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._settings: dict[Connection, Settings] = {}

    def take(self) -> Connection:
        try:
            connection = take_living(self._pool, self._pool.timeout)
        except psycopg.OperationalError as error:  # none in time, too many waiting, or not open
            raise unavailable(error) from error
        try:
            self._settings[connection] = adjust(connection)
        except BaseException:
            self.give_back(connection)
            raise
        return connection

    def give_back(self, connection: Connection) -> None:
        settings = self._settings.pop(connection, None)
        if settings is not None:
            restore(connection, settings)
        self._pool.putconn(connection)

    def close(self) -> None:
        """Not ours."""


class OwnPool:
    """A pool that is opened with its first use."""

    def __init__(self, conninfo: str, *, prepare: bool, max_size: int, timeout: float) -> None:
        self.configured = prepare
        self.database: str | None = None
        self._opening = threading.Lock()
        self._conninfo = conninfo
        self._opened = False
        self._closed = False
        self._pool: Pool = ConnectionPool(
            conninfo,
            kwargs={"autocommit": True, **({} if prepare else {"prepare_threshold": None})},
            min_size=1,
            max_size=max_size,
            timeout=timeout,
            reconnect_timeout=RECONNECT,
            configure=self._configure,
            name="queuert",
            open=False,
        )

    def take(self) -> Connection:
        if not self._opened:
            self._open()
        deadline = monotonic() + self._pool.timeout
        while True:
            try:
                return take_living(self._pool, min(PATIENCE, self._pool.timeout))
            except PoolClosed as error:
                raise closed() from error
            except PoolTimeout as error:
                self._require_server()
                if monotonic() > deadline:
                    raise unavailable(
                        f"all {self._pool.max_size} connections were in use for {self._pool.timeout:g} s"
                    ) from error

    def give_back(self, connection: Connection) -> None:
        self._pool.putconn(connection)

    def close(self) -> None:
        with self._opening:
            self._closed = True
            if self._opened:
                self._pool.close()

    def _open(self) -> None:
        with self._opening:
            if self._closed:
                raise closed()
            if not self._opened:
                self._pool.open()
                self._opened = True

    def _require_server(self) -> None:
        """A pool keeps to itself why it gets no connections: ask for one beside it."""
        try:
            beside = PsycopgConnection.connect(self._conninfo, connect_timeout=5)
            beside.close()
        except psycopg.Error as error:
            raise unavailable(error) from error

    def _configure(self, connection: Connection) -> None:
        connection.set_isolation_level(READ_COMMITTED)
        if self.configured:
            connection.execute(SET_ISOLATION)
            self.database = connection.info.dbname


class OneConnection:
    """One connection of the user's; those who want it take turns."""

    configured = False
    database: str | None = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._holder: int | None = None

    def take(self) -> Connection:
        if self._holder == threading.get_ident():
            raise nested("thread")
        self._lock.acquire()
        try:
            if status_of(self._connection) != IDLE:
                raise not_idle(self._connection)
            self._settings = adjust(self._connection)
        except BaseException:
            self._lock.release()
            raise
        self._holder = threading.get_ident()
        return self._connection

    def give_back(self, connection: Connection) -> None:
        self._holder = None
        try:
            restore(connection, self._settings)
        finally:
            self._lock.release()

    def close(self) -> None:
        """Not ours."""


def take_living(pool: Pool, timeout: float) -> Connection:
    """A connection of the pool that the server has not hung up on, as far as one can see from here."""
    for _ in range(pool.max_size + 1):
        connection: Connection = pool.getconn(timeout)
        if not is_dead(connection):
            return connection
        connection.pgconn.finish()
        pool.putconn(connection)
    raise unavailable("the server has closed all connections")


def adjust(connection: Connection) -> Settings:
    """Autocommit, and read committed where psycopg begins a transaction; answers what it was before."""
    settings = (connection.autocommit, connection.isolation_level)
    if not connection.autocommit:
        connection.set_autocommit(True)
    if connection.isolation_level != READ_COMMITTED:
        connection.set_isolation_level(READ_COMMITTED)
    return settings


def restore(connection: Connection, settings: Settings) -> None:
    autocommit, isolation_level = settings
    if status_of(connection) != IDLE:
        return  # lost, or left in the middle of something: a pool will throw it away
    connection.set_autocommit(autocommit)
    connection.set_isolation_level(isolation_level)
