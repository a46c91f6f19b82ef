"""psycopg's pools as sources of connections: a pool of our own, and the user's."""

from __future__ import annotations

import asyncio
import select
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection, Connection, IsolationLevel
from psycopg.pq import ConnStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolClosed, PoolTimeout

from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.psycopg_connection import AnyConnection
from queuert.adapters.postgres.drivers.sources import OpenedOnce, PoolOptions
from queuert.adapters.waiting import IN_THREAD, ON_LOOP, Waiting, done
from queuert.blocking import run_blocking
from queuert.errors import ClientClosed

AnyPool = AsyncConnectionPool[Any] | ConnectionPool[Any]

READ_COMMITTED = IsolationLevel.READ_COMMITTED

RECONNECT = 3.0
"""Seconds after which our pool stops trying to connect. The next request makes it try again."""

POOL_WAIT = 2.0
"""Seconds to wait for a connection of our pool before testing whether the server can be reached."""


class Kind(NamedTuple):
    """One of psycopg's two sets of classes."""

    waiting: Waiting
    connection: type[AnyConnection]
    pool: type[AnyPool]


ASYNC = Kind(ON_LOOP, AsyncConnection, AsyncConnectionPool)
SYNC = Kind(IN_THREAD, Connection, ConnectionPool)


class GivenPool:
    """The user's pool. The user opens and closes it."""

    database: str | None = None

    def __init__(self, waiting: Waiting, pool: AnyPool) -> None:
        self._waiting = waiting
        self._pool = pool

    async def take(self) -> Any:
        try:
            return await take_living(self._waiting, self._pool, self._pool.timeout)
        except psycopg.OperationalError as error:  # none in time, too many waiting, or not open
            raise unavailable(error) from error

    async def give_back(self, connection: Any) -> None:
        await done(self._pool.putconn(connection))

    async def close(self) -> None:
        """It is the user's."""


class OwnPool(OpenedOnce):
    """A pool of our own."""

    def __init__(self, kind: Kind, conninfo: str, options: PoolOptions) -> None:
        super().__init__(kind.waiting)
        self.database: str | None = None
        self._kind = kind
        self._conninfo = conninfo
        self._prepare = options.prepare
        configure: Any = self._configure if kind is ASYNC else self._configure_blocking
        self._pool: AnyPool = kind.pool(
            conninfo,
            kwargs={"autocommit": True, **({} if options.prepare else {"prepare_threshold": None})},
            min_size=1,
            max_size=options.max_size,
            timeout=options.timeout,
            reconnect_timeout=RECONNECT,
            configure=configure,
            name="queuert",
            open=False,
        )

    async def take(self) -> Any:
        if not self._is_open:
            await self.open()
        pool, deadline = self._pool, monotonic() + self._pool.timeout
        while True:
            try:
                return await take_living(self._kind.waiting, pool, min(POOL_WAIT, pool.timeout))
            except PoolClosed as error:
                raise ClientClosed("PostgreSQL provider") from error
            except PoolTimeout as error:
                await self._require_server()
                if monotonic() > deadline:
                    busy = f"all {pool.max_size} connections were in use for {pool.timeout:g} s"
                    raise unavailable(busy) from error

    async def give_back(self, connection: Any) -> None:
        await done(self._pool.putconn(connection))

    async def _open(self) -> None:
        await done(self._pool.open())

    async def _close(self) -> None:
        await done(self._pool.close())

    async def _require_server(self) -> None:
        """Open a separate connection: its error explains why the pool gets no connections."""
        try:
            beside: AnyConnection = await done(self._kind.connection.connect(self._conninfo, connect_timeout=5))
            await done(beside.close())
        except psycopg.Error as error:
            raise unavailable(error) from error

    async def _configure(self, connection: AnyConnection) -> None:
        await done(connection.set_isolation_level(READ_COMMITTED))
        if self._prepare:
            await done(connection.execute("SET default_transaction_isolation TO 'read committed'"))
            self.database = connection.info.dbname

    def _configure_blocking(self, connection: AnyConnection) -> None:
        run_blocking(self._configure(connection))


async def take_living(waiting: Waiting, pool: AnyPool, timeout: float) -> AnyConnection:
    """A connection of the pool that the server has not closed, as far as the client can tell."""
    cancellations = waiting.cancellations()
    for _ in range(pool.max_size + 1):
        connection: AnyConnection = await done(pool.getconn(timeout))
        if waiting.cancellations() > cancellations:  # Python 3.11 may lose one on the way
            await done(pool.putconn(connection))
            raise asyncio.CancelledError
        if not is_dead(connection):
            return connection
        connection.pgconn.finish()
        await done(pool.putconn(connection))
    raise unavailable("the server has closed all connections")


def is_dead(connection: AnyConnection) -> bool:
    """Whether the server has closed an idle connection. Reads the socket, without a round trip."""
    if connection.closed:
        return True
    pgconn = connection.pgconn
    for _ in range(3):  # the server's last message, then the end
        if not _is_readable(pgconn.socket):
            return False
        try:
            pgconn.consume_input()
        except psycopg.OperationalError:
            return True
    return pgconn.status != ConnStatus.OK


def _is_readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
