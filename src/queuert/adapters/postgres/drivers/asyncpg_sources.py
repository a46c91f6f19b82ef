"""Where asyncpg's connections come from: a pool of ours, the user's pool, or one connection of the user's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import asyncpg

from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.errors import ClientClosed, InvalidArgument, TransactionMisused, TransactionNested

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[Any] | PoolConnectionProxy[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]
    _Base = asyncpg.Connection[asyncpg.Record]
else:
    Connection = Pool = Any
    _Base = asyncpg.Connection

DriverError = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError)

GRACE = 5.0
"""Seconds that close() waits for connections that are in use."""


class Source(Protocol):
    configured: bool
    """Whether its connections are read committed by default, because we have set them so."""
    database: str | None
    """The database's name, once it is known for sure."""

    async def take(self, *, for_user: bool) -> Connection: ...

    async def give_back(self, connection: Connection) -> None: ...

    async def close(self) -> None: ...


def async_source(
    source: str | Pool | asyncpg.Connection[Any], *, prepare: bool, max_size: int, timeout: float
) -> Source:
    if isinstance(source, str):
        return OwnPool(source, prepare=prepare, max_size=max_size, timeout=timeout)
    if isinstance(source, asyncpg.Pool):
        return GivenPool(source)
    if isinstance(source, asyncpg.Connection):  # pyright: ignore[reportUnnecessaryIsInstance]
        return OneConnection(source)
    raise InvalidArgument(
        "expected a URL, an asyncpg.Pool or an asyncpg.Connection, "
        f"got {type(source).__module__}.{type(source).__qualname__}"
    )


class OwnConnection(_Base):
    """A connection of our own pool.

    What its user has set on it for the session reaches neither us nor the next user. A reset is a round trip: so it is
    sent together with the next BEGIN; before a statement of our own; and at once only after an error, when the user may
    have left locks behind.
    """

    was_handed_out = False
    failed = False

    async def hand_out(self, *, to_user: bool) -> None:
        if self.was_handed_out and not to_user:
            await self.execute(super().get_reset_query())
            self.was_handed_out = False

    def begin(self, words: str) -> str:
        """What begins a transaction of the user's."""
        reset, self.was_handed_out = self.was_handed_out, True
        # Nothing here needs a snapshot: then the transaction could not choose its isolation any more.
        return f"UNLISTEN *; RESET ALL; {words}" if reset else words

    def get_reset_query(self) -> str:
        if not self.failed:
            return ""
        self.failed = self.was_handed_out = False
        return super().get_reset_query()


def own(connection: Connection) -> OwnConnection | None:
    """The connection itself, if it is one of our own pool's, which hands out proxies."""
    found = getattr(connection, "_con", None)
    # Not isinstance: asyncpg says yes to that for each of its connections.
    return found if type(found) is OwnConnection else None


class GivenPool:
    """The user's pool, which is his to open and to close."""

    configured = False
    database: str | None = None

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def take(self, *, for_user: bool) -> Connection:  # noqa: ARG002
        return await self._pool.acquire()

    async def give_back(self, connection: Connection) -> None:
        await release(self._pool, connection)

    async def close(self) -> None:
        """Not ours."""


class OwnPool:
    """A pool that is opened with its first use, and connects when a connection is needed."""

    def __init__(self, url: str, *, prepare: bool, max_size: int, timeout: float) -> None:
        self.configured = prepare
        self.database: str | None = None
        self._url = url
        self._options: dict[str, Any] = {"max_size": max_size}
        if prepare:
            self._options["server_settings"] = {"default_transaction_isolation": "read committed"}
        else:
            self._options["statement_cache_size"] = 0
        self._timeout = timeout
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def take(self, *, for_user: bool) -> Connection:
        try:
            async with asyncio.timeout(self._timeout):
                pool = self._pool or await self._open()
                connection = await pool.acquire()
        except TimeoutError as error:
            raise unavailable(f"no connection within {self._timeout:g} s") from error
        if self.configured:
            self.database = getattr(getattr(connection, "_params", None), "database", None)
        try:
            await connection.hand_out(to_user=for_user)  # type: ignore[attr-defined]  # a proxy passes it on
        except BaseException:
            await release(pool, connection)
            raise
        return connection

    async def give_back(self, connection: Connection) -> None:
        assert self._pool is not None
        await release(self._pool, connection)

    async def close(self) -> None:
        self._closed = True
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(GRACE):
                await self._pool.close()
        except TimeoutError:
            return  # asyncpg has cut them off

    async def _open(self) -> Pool:
        async with self._opening:
            if self._closed:
                raise ClientClosed("PostgreSQL provider")
            if self._pool is None:
                pool = asyncpg.create_pool(self._url, min_size=0, connection_class=OwnConnection, **self._options)
                await pool
                self._pool = pool
            return self._pool


class OneConnection:
    """One connection of the user's; those who want it take turns."""

    configured = False
    database: str | None = None

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = asyncio.Lock()
        self._holder: asyncio.Task[Any] | None = None

    async def take(self, *, for_user: bool) -> Connection:  # noqa: ARG002
        if self._holder is not None and self._holder is asyncio.current_task():
            raise TransactionNested(
                "this task has a transaction open on the only connection and would wait for itself: "
                "use the transaction that is open, or give the provider a pool"
            )
        await self._lock.acquire()
        try:
            if self._connection.is_closed():
                raise unavailable("the connection that was given is closed")
            if self._connection.is_in_transaction():
                raise TransactionMisused(
                    "the only connection that the provider has is inside a transaction of yours: join it with "
                    "after_commit(connection) and pass tx on, or give the provider a pool"
                )
        except BaseException:
            self._lock.release()
            raise
        self._holder = asyncio.current_task()
        return self._connection

    async def give_back(self, connection: Connection) -> None:  # noqa: ARG002
        self._holder = None
        self._lock.release()

    async def close(self) -> None:
        """Not ours."""


async def release(pool: Pool, connection: Connection) -> None:
    try:
        await pool.release(connection)  # type: ignore[arg-type]
    except DriverError:
        return  # it could not be reset: asyncpg has thrown it away
