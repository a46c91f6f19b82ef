"""Where psycopg's async connections come from: a pool of ours, the user's pool, or one connection of the user's.

What is taken is outside of any transaction and has autocommit, so that a single statement is a single round trip; the
settings that the user's connections had are put back when they are given back.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, Protocol

import psycopg
from psycopg import AsyncConnection as PsycopgAsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

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

Connection = PsycopgAsyncConnection[Any]
Pool = AsyncConnectionPool[Any]
AsyncSource = str | Pool | Connection


class Source(Protocol):
    configured: bool
    """Whether its connections are read committed by default, because we have set them so."""
    database: str | None
    """The database's name, once it is known for sure."""

    async def take(self) -> Connection: ...

    async def give_back(self, connection: Connection) -> None: ...

    async def close(self) -> None: ...


def async_source(source: AsyncSource, *, prepare: bool, max_size: int, timeout: float) -> Source:
    if isinstance(source, str):
        return OwnPool(source, prepare=prepare, max_size=max_size, timeout=timeout)
    if isinstance(source, AsyncConnectionPool):
        return GivenPool(source)
    if isinstance(source, PsycopgAsyncConnection):  # pyright: ignore[reportUnnecessaryIsInstance]
        return OneConnection(source)
    raise refuse_source(source, "AsyncConnectionPool", "AsyncConnection")


class GivenPool:
    """The user's pool, which is his to open and to close."""

    configured = False
    database: str | None = None

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._settings: dict[Connection, Settings] = {}

    async def take(self) -> Connection:
        try:
            connection = await take_living(self._pool, self._pool.timeout)
        except psycopg.OperationalError as error:  # none in time, too many waiting, or not open
            raise unavailable(error) from error
        try:
            self._settings[connection] = await adjust(connection)
        except BaseException:
            await self.give_back(connection)
            raise
        return connection

    async def give_back(self, connection: Connection) -> None:
        settings = self._settings.pop(connection, None)
        if settings is not None:
            await restore(connection, settings)
        await self._pool.putconn(connection)

    async def close(self) -> None:
        """Not ours."""


class OwnPool:
    """A pool that is opened with its first use."""

    def __init__(self, conninfo: str, *, prepare: bool, max_size: int, timeout: float) -> None:
        self.configured = prepare
        self.database: str | None = None
        self._conninfo = conninfo
        self._opening = asyncio.Lock()
        self._opened = False
        self._closed = False
        self._pool: Pool = AsyncConnectionPool(
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

    async def take(self) -> Connection:
        if not self._opened:
            await self._open()
        deadline = monotonic() + self._pool.timeout
        while True:
            try:
                return await take_living(self._pool, min(PATIENCE, self._pool.timeout))
            except PoolClosed as error:
                raise closed() from error
            except PoolTimeout as error:
                await self._require_server()
                if monotonic() > deadline:
                    raise unavailable(
                        f"all {self._pool.max_size} connections were in use for {self._pool.timeout:g} s"
                    ) from error

    async def give_back(self, connection: Connection) -> None:
        await self._pool.putconn(connection)

    async def close(self) -> None:
        async with self._opening:
            self._closed = True
            if self._opened:
                await self._pool.close()

    async def _open(self) -> None:
        async with self._opening:
            if self._closed:
                raise closed()
            if not self._opened:
                await self._pool.open()
                self._opened = True

    async def _require_server(self) -> None:
        """A pool keeps to itself why it gets no connections: ask for one beside it."""
        try:
            beside = await PsycopgAsyncConnection.connect(self._conninfo, connect_timeout=5)
            await beside.close()
        except psycopg.Error as error:
            raise unavailable(error) from error

    async def _configure(self, connection: Connection) -> None:
        await connection.set_isolation_level(READ_COMMITTED)
        if self.configured:
            await connection.execute(SET_ISOLATION)
            self.database = connection.info.dbname


class OneConnection:
    """One connection of the user's; those who want it take turns."""

    configured = False
    database: str | None = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None

    async def take(self) -> Connection:
        if self._holder is not None and self._holder is asyncio.current_task():
            raise nested("task")
        await self._lock.acquire()
        try:
            if status_of(self._connection) != IDLE:
                raise not_idle(self._connection)
            self._settings = await adjust(self._connection)
        except BaseException:
            self._lock.release()
            raise
        self._holder = asyncio.current_task()
        return self._connection

    async def give_back(self, connection: Connection) -> None:
        self._holder = None
        try:
            await restore(connection, self._settings)
        finally:
            self._lock.release()

    async def close(self) -> None:
        """Not ours."""


async def take_living(pool: Pool, timeout: float) -> Connection:
    """A connection of the pool that the server has not hung up on, as far as one can see from here."""
    task = asyncio.current_task()
    cancelled = 0 if task is None else task.cancelling()
    for _ in range(pool.max_size + 1):
        connection: Connection = await pool.getconn(timeout)
        if task is not None and task.cancelling() > cancelled:  # Python 3.11 may lose a cancellation on the way
            await pool.putconn(connection)
            raise asyncio.CancelledError
        if not is_dead(connection):
            return connection
        connection.pgconn.finish()
        await pool.putconn(connection)
    raise unavailable("the server has closed all connections")


async def adjust(connection: Connection) -> Settings:
    """Autocommit, and read committed where psycopg begins a transaction; answers what it was before."""
    settings = (connection.autocommit, connection.isolation_level)
    if not connection.autocommit:
        await connection.set_autocommit(True)
    if connection.isolation_level != READ_COMMITTED:
        await connection.set_isolation_level(READ_COMMITTED)
    return settings


async def restore(connection: Connection, settings: Settings) -> None:
    autocommit, isolation_level = settings
    if status_of(connection) != IDLE:
        return  # lost, or left in the middle of something: a pool will throw it away
    await connection.set_autocommit(autocommit)
    await connection.set_isolation_level(isolation_level)
