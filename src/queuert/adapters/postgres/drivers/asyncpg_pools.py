"""asyncpg's pools as sources of connections: a pool of our own, and the user's."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import asyncpg

from queuert.adapters.finishing import CANCEL_PATIENCE
from queuert.adapters.postgres.drivers import errors
from queuert.adapters.postgres.drivers import pool as connections
from queuert.adapters.postgres.drivers.errors import unavailable
from queuert.adapters.postgres.drivers.sources import Gate, GivenPool, PoolOptions, Source
from queuert.adapters.postgres.urls import check_url
from queuert.adapters.waiting import ON_LOOP
from queuert.base.blocking import run_blocking
from queuert.errors import StorageError
from queuert.ports.provider import TimeLimit

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

    async def clean(self) -> None:
        """Before a statement of our own."""
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


def check_encoding(connection: Connection) -> None:
    """Raise if the database cannot hold every text. asyncpg itself always sends UTF-8."""
    encoding = getattr(connection.get_settings(), "server_encoding", None)
    if encoding != "UTF8":
        errors.check_server_encoding(encoding)


class GivenAsyncpgPool(GivenPool[Connection]):
    """The user's pool. The user opens and closes it."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(Gate(ON_LOOP, pool.get_max_size(), None))
        self._pool = pool

    async def acquire(self, limit: TimeLimit | None) -> Connection:
        return await self._pool.acquire(timeout=None if limit is None else limit.seconds)

    async def release(self, connection: Connection) -> None:
        await self._pool.release(connection, timeout=CANCEL_PATIENCE)  # type: ignore[arg-type]


class OwnPool(Source[Connection]):
    """A pool of our own. Its users get proxies, as from asyncpg's pool: one that is used too late
    raises an error."""

    def __init__(self, url: str, options: PoolOptions) -> None:
        self._pool = connections.Pool(AsyncpgOpener(url, prepare=options.prepare), options, CLOSE_WAIT)
        self.shares = self._pool.shares

    @property
    def database(self) -> str | None:  # type: ignore[override]
        return self._pool.database

    async def take(self, limit: TimeLimit | None) -> Connection:
        return asyncpg.pool.PoolConnectionProxy(self, await self._pool.take(limit))  # type: ignore[arg-type]

    def take_now(self, limit: TimeLimit | None) -> Connection | None:
        connection = self._pool.take_now(limit)
        return None if connection is None else asyncpg.pool.PoolConnectionProxy(self, connection)  # type: ignore[arg-type]

    async def give_back(self, connection: Any) -> None:
        own_connection: OwnConnection = connection._detach()
        await self._pool.give_back(own_connection)

    def give_back_now(self, connection: Any) -> bool:
        if not self._pool.give_back_now(connection._con):
            return False
        connection._detach()
        return True

    async def close(self) -> None:
        await self._pool.close()
        for left in self._pool.in_use:
            left.terminate()

    def distrust_idle(self) -> None:
        self._pool.distrust_idle()

    async def reserve(self, statement_timeout: float) -> None:
        await self._pool.reserve(statement_timeout)

    async def unreserve(self) -> None:
        await self._pool.unreserve()


class AsyncpgOpener(connections.Opener[OwnConnection]):
    waiting = ON_LOOP

    def __init__(self, url: str, *, prepare: bool) -> None:
        check_url(url)
        self._url = url
        self._prepare = prepare

    async def connect(self, seconds: float, statement_timeout: float | None) -> OwnConnection:
        options: dict[str, Any] = {"statement_cache_size": 0}
        if self._prepare:
            settings = {"default_transaction_isolation": "read committed"}
            if statement_timeout is not None and "statement_timeout" not in parse_qs(urlsplit(self._url).query):
                settings["statement_timeout"] = str(round(statement_timeout * 1000))
            options = {"server_settings": settings}
        try:
            connection: Any = await asyncpg.connect(
                self._url, timeout=seconds, connection_class=OwnConnection, **options
            )
        except TimeoutError as error:
            raise unavailable(f"it did not accept a connection within {seconds:g} s") from error
        except asyncpg.ClientConfigurationError as error:
            raise StorageError(f"asyncpg cannot use the settings of this connection: {error}") from None
        except asyncpg.PostgresError as error:
            if errors.is_unavailable(error.sqlstate):
                raise
            # An unknown option of the URL, for example: to asyncpg, it is a setting of the server.
            raise StorageError(f"PostgreSQL rejected the connection: {error}") from error
        if self._prepare:  # otherwise PgBouncer may have its own names
            self.database = database_of(connection)
        own_connection: OwnConnection = connection
        return own_connection

    def is_usable(self, connection: OwnConnection) -> bool:
        return not connection.is_closed()

    def clean_now(self, connection: OwnConnection) -> bool:
        any_connection: Any = connection
        if connection.is_closed() or connection.failed or connection.is_in_transaction():
            return False
        if any_connection._top_xact is not None or any_connection._protocol._is_cancelling():
            return False
        any_connection._on_release()
        if any_connection._listeners or any_connection._log_listeners:
            run_blocking(connection.reset())  # it forgets these. There is nothing to send
        return True

    async def clean(self, connection: OwnConnection) -> bool:
        """What asyncpg's pool does. First, the server must have answered a cancellation."""
        any_connection: Any = connection
        try:
            if connection.is_closed():
                return False
            any_connection._on_release()  # prepared statements and cursors of the user's end here
            is_cancelling = any_connection._protocol._is_cancelling()
            is_open = connection.is_in_transaction() or any_connection._top_xact is not None
            if not (connection.failed or is_cancelling or is_open):
                await connection.reset()  # nothing is sent, so it does not wait
                return True
            async with asyncio.timeout(CANCEL_PATIENCE):
                if is_cancelling:
                    await any_connection._protocol._wait_for_cancellation(None)
                await connection.reset()
        except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
            return False
        return not connection.is_closed()

    async def close(self, connection: OwnConnection) -> None:
        if connection.is_closed():
            connection.terminate()  # asyncpg may not have cleaned up yet
            return
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError):
            await connection.close(timeout=CANCEL_PATIENCE)
