"""psycopg's pools as sources of connections: a pool of our own, and the user's."""

from __future__ import annotations

import asyncio
import os
import select
from typing import Any, NamedTuple

import psycopg
from psycopg import AsyncConnection, Connection, IsolationLevel
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ConnStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from queuert.adapters.postgres.drivers.driver import Status
from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.pool import Opener
from queuert.adapters.postgres.drivers.psycopg_connection import (
    READ_COMMITTED_BY_DEFAULT,
    AnyConnection,
    OwnAsyncConnection,
    OwnConnection,
    send,
    status_of,
    translated,
)
from queuert.adapters.postgres.drivers.psycopg_conninfo import check_conninfo
from queuert.adapters.postgres.drivers.sources import Gate, GivenPool
from queuert.adapters.waiting import IN_THREAD, ON_LOOP, Waiting, done
from queuert.ports.provider import TimeLimit

AnyPool = AsyncConnectionPool[Any] | ConnectionPool[Any]

READ_COMMITTED = IsolationLevel.READ_COMMITTED

CONNECT_TIMEOUT = 5
"""Seconds for each host to accept a connection, unless the URL has a `connect_timeout`."""


class Kind(NamedTuple):
    """One of psycopg's two sets of classes."""

    waiting: Waiting
    connection: type[AnyConnection]
    pool: type[AnyPool]
    own: type[AnyConnection]
    """The class of the connections of our own pool."""


ASYNC = Kind(ON_LOOP, AsyncConnection, AsyncConnectionPool, OwnAsyncConnection)
SYNC = Kind(IN_THREAD, Connection, ConnectionPool, OwnConnection)


class GivenPsycopgPool(GivenPool[Any]):
    """The user's pool. The user opens and closes it."""

    def __init__(self, waiting: Waiting, pool: AnyPool) -> None:
        super().__init__(Gate(waiting, pool.max_size, pool.timeout))
        self._waiting = waiting
        self._pool = pool

    async def acquire(self, limit: TimeLimit | None) -> Any:
        seconds = self._pool.timeout if limit is None else min(limit.seconds, self._pool.timeout)
        try:
            return await take_living(self._waiting, self._pool, seconds)
        except psycopg.OperationalError as error:  # none in time, too many waiting, or not open
            raise unavailable(error) from error

    async def release(self, connection: Any) -> None:
        await done(self._pool.putconn(connection))


class PsycopgOpener(Opener[Any]):
    """Opens the connections of a pool of our own."""

    def __init__(self, kind: Kind, conninfo: str, *, prepare: bool) -> None:
        self.waiting = kind.waiting
        self._connect = kind.own.connect
        self._conninfo = check_conninfo(conninfo)
        self._prepare = prepare

    async def connect(self, seconds: float, statement_timeout: float | None) -> Any:
        try:
            return await self.waiting.connecting(self._open(seconds, statement_timeout), seconds)
        except TimeoutError:
            # Without its cause: the traceback would keep a half-open connection alive.
            raise unavailable(f"it did not accept a connection within {seconds:g} s") from None
        except psycopg.Error as error:
            raise translated(error, inside=False) from error

    async def _open(self, seconds: float, statement_timeout: float | None) -> Any:
        settings: dict[str, Any] = {"client_encoding": "utf8"}  # whatever the role or the URL has
        if not self._prepare:
            settings["prepare_threshold"] = None
        given = conninfo_to_dict(self._conninfo)
        if "connect_timeout" not in given:  # of each host, in whole seconds
            settings["connect_timeout"] = max(2, min(CONNECT_TIMEOUT, round(seconds)))
        if statement_timeout is not None and self._prepare:  # otherwise PgBouncer may refuse it
            before = given.get("options") or os.environ.get("PGOPTIONS", "")
            # Before the user's own, which win.
            settings["options"] = f"-c statement_timeout={round(statement_timeout * 1000)} {before}".strip()
        connection: AnyConnection = await done(self._connect(self._conninfo, autocommit=True, **settings))
        try:
            await self._configure(connection)
        except BaseException:
            connection.pgconn.finish()
            raise
        return connection

    async def _configure(self, connection: AnyConnection) -> None:
        await done(connection.set_isolation_level(READ_COMMITTED))
        if self._prepare:
            await send(connection, READ_COMMITTED_BY_DEFAULT)
            self.database = connection.info.dbname

    def is_usable(self, connection: Any) -> bool:
        return not is_dead(connection)

    def clean_now(self, connection: Any) -> bool:
        return status_of(connection) is Status.IDLE

    async def clean(self, connection: Any) -> bool:
        """What is not idle was lost, or left in the middle of something."""
        return status_of(connection) is Status.IDLE

    async def close(self, connection: Any) -> None:
        connection.pgconn.finish()  # does not wait for the server


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
