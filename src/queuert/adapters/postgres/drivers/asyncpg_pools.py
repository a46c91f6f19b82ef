"""asyncpg's pools as sources of connections: a pool of our own, and the user's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import asyncpg

from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.sources import OpenedOnce, PoolOptions
from queuert.adapters.waiting import ON_LOOP

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection: TypeAlias = asyncpg.Connection[Any] | PoolConnectionProxy[Any]
    Pool: TypeAlias = asyncpg.Pool[Any]
    _Base = asyncpg.Connection[asyncpg.Record]
else:
    Connection = Pool = Any
    _Base = asyncpg.Connection

CLOSE_WAIT = 5.0
"""Seconds that close() waits for connections that are in use."""


class OwnConnection(_Base):
    """A connection of our own pool.

    Session settings that a user leaves behind must reach neither our own statements nor the next
    user. A reset is a round trip, so it is delayed: it is sent together with the next BEGIN, or
    before a statement of our own. Only after an error is it sent at once, because the user may have
    left locks behind.
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
        # Nothing here needs a snapshot. With one, the transaction could not choose its isolation.
        return f"UNLISTEN *; RESET ALL; {words}" if reset else words

    def get_reset_query(self) -> str:
        """asyncpg's pool sends this when the connection is released."""
        if not self.failed:
            return ""
        self.failed = self.was_handed_out = False
        return super().get_reset_query()


def own(connection: Connection) -> OwnConnection | None:
    """The connection itself if it belongs to our own pool, which hands out proxies."""
    found = getattr(connection, "_con", None)
    # Not isinstance: asyncpg answers that with True for each of its connections.
    return found if type(found) is OwnConnection else None


def database_of(connection: Connection) -> str | None:
    """asyncpg has no public name for it. None: the private one is gone."""
    return getattr(getattr(connection, "_params", None), "database", None)


class GivenPool:
    """The user's pool. The user opens and closes it."""

    database: str | None = None

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def take(self) -> Connection:
        return await self._pool.acquire()

    async def give_back(self, connection: Connection) -> None:
        await self._pool.release(connection)  # type: ignore[arg-type]

    async def close(self) -> None:
        """It is the user's."""


class OwnPool(OpenedOnce):
    """A pool of our own. It connects when a connection is needed."""

    _pool: Pool

    def __init__(self, url: str, options: PoolOptions) -> None:
        super().__init__(ON_LOOP)
        self.database: str | None = None
        self._url = url
        self._options = options

    async def take(self) -> Connection:
        timeout = self._options.timeout
        try:
            async with asyncio.timeout(timeout):
                if not self._is_open:
                    await self.open()
                connection = await self._pool.acquire()
        except TimeoutError as error:
            raise unavailable(f"no connection within {timeout:g} s") from error
        if self._options.prepare:  # otherwise PgBouncer may have its own names
            self.database = database_of(connection)
        return connection

    async def give_back(self, connection: Connection) -> None:
        await self._pool.release(connection)  # type: ignore[arg-type]

    async def _open(self) -> None:
        settings: dict[str, Any] = {"statement_cache_size": 0}
        if self._options.prepare:
            settings = {"server_settings": {"default_transaction_isolation": "read committed"}}
        size = self._options.max_size
        self._pool = await asyncpg.create_pool(
            self._url, min_size=0, max_size=size, connection_class=OwnConnection, **settings
        )

    async def _close(self) -> None:
        try:
            async with asyncio.timeout(CLOSE_WAIT):
                await self._pool.close()
        except TimeoutError:
            return  # asyncpg has closed them all
