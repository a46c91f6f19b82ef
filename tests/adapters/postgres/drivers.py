"""The drivers in one dress, so that a test is written once: what a provider does, and what its user does beside it.

The sync provider does its work inline, in the thread of the event loop, and is done before anybody else runs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

import asyncpg
import psycopg
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool
from tests.support.postgres import flush_statistics

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.asyncpg import AsyncpgProvider
from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider, PsycopgSyncProvider


def statement(text: str, *values: Any, alone: bool = False) -> PgStatement:
    return PgStatement(text, values, alone=alone)


class Watcher:
    """A connection that looks on: what is committed, who is connected and in what state."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)

    def __call__(self, text: Any, *values: Any) -> list[Any]:
        """The rows; if they have one column, its values."""
        cursor = self._connection.execute(text, values or None)
        rows = cursor.fetchall() if cursor.description else []
        return [row[0] for row in rows] if rows and len(rows[0]) == 1 else rows

    def others(self, condition: Any = "true") -> list[int]:
        """The backends of this database but for our own."""
        return self(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' "
            "AND pid <> pg_backend_pid() AND " + condition
        )

    def terminate_others(self, condition: Any = "true") -> int:
        """End them, and wait until they have gone, with their sockets.

        (The server's own way of waiting takes a tenth of a second each. And a backend that is not listed any more
        may not have closed its socket yet: its process tells.)
        """
        pids = self.others(condition)
        for pid in pids:
            self(f"SELECT pg_terminate_backend({pid})")
        deadline = time.monotonic() + 45
        while self.others(f"pid = ANY (ARRAY{pids}::int[])") or any(map(_runs, pids)):
            assert time.monotonic() < deadline, "it does not end"
        return len(pids)

    async def until(self, condition: Any) -> None:
        """Wait for another backend to come into a state."""
        async with asyncio.timeout(45):
            while not self.others(condition):
                await asyncio.sleep(0.005)

    async def until_gone(self, condition: Any = "true") -> None:
        """Wait until no other backend is (any more) in this state; without a state, until all are gone."""
        async with asyncio.timeout(45):
            while self.others(condition):
                await asyncio.sleep(0.005)

    def flush_statistics(self) -> None:
        flush_statistics(self._connection)

    def close(self) -> None:
        self._connection.close()


def _runs(pid: int) -> bool:
    """Whether there is such a process here; false if the server is on another machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Driver:
    """What differs between the drivers."""

    name: ClassVar[str]
    is_sync: ClassVar[bool] = False
    error: ClassVar[type[Exception]]
    """The driver's errors for what the server says."""

    def provider(self, source: Any, **options: Any) -> Any:
        raise NotImplementedError

    async def connect(self, url: str, **options: Any) -> Any:
        """A connection of the user's own."""
        raise NotImplementedError

    async def close(self, connection: Any) -> None:
        raise NotImplementedError

    def pool(self, url: str, size: int = 2) -> Any:
        """A pool of the user's own, as a context manager."""
        raise NotImplementedError

    async def sql(self, connection: Any, text: str) -> list[tuple[Any, ...]]:
        """What the user says on his connection, or on one that he was given."""
        raise NotImplementedError

    def block(self, connection: Any) -> Any:
        """The driver's own transaction block."""
        raise NotImplementedError

    def in_pool(self, pool: Any) -> int:
        """How many connections rest in the user's pool."""
        raise NotImplementedError

    async def poison(self, connection: Any) -> None:
        """Let a statement fail, and swallow the error."""
        try:
            await self.sql(connection, "SELECT 1 / 0")
        except self.error:
            return
        raise AssertionError("it must fail")

    def __repr__(self) -> str:
        return self.name


class Psycopg(Driver):
    name = "psycopg"
    error = psycopg.Error

    def provider(self, source: Any, **options: Any) -> Any:
        return PsycopgProvider(source, **options)

    async def connect(self, url: str, **options: Any) -> Any:
        return await psycopg.AsyncConnection.connect(url, **_with_autocommit(options))

    async def close(self, connection: Any) -> None:
        await connection.close()

    def pool(self, url: str, size: int = 2) -> Any:
        # As most people have it: without autocommit, and with rows that are not tuples.
        return AsyncConnectionPool(url, min_size=size, max_size=size, kwargs={"row_factory": dict_row}, open=False)

    async def sql(self, connection: Any, text: str) -> list[tuple[Any, ...]]:
        cursor = await psycopg.AsyncCursor(connection).execute(text.encode())
        return await cursor.fetchall() if cursor.description else []

    def block(self, connection: Any) -> Any:
        return connection.transaction()

    def in_pool(self, pool: Any) -> int:
        return int(pool.get_stats()["pool_available"])


class Asyncpg(Driver):
    name = "asyncpg"
    error = asyncpg.PostgresError

    def provider(self, source: Any, **options: Any) -> Any:
        return AsyncpgProvider(source, **options)

    async def connect(self, url: str, **options: Any) -> Any:
        return await asyncpg.connect(url, **options)

    async def close(self, connection: Any) -> None:
        await connection.close()

    def pool(self, url: str, size: int = 2) -> Any:
        return asyncpg.create_pool(url, min_size=size, max_size=size)

    async def sql(self, connection: Any, text: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in await connection.fetch(text)]

    def block(self, connection: Any) -> Any:
        return connection.transaction()

    def in_pool(self, pool: Any) -> int:
        return int(pool.get_idle_size())


class PsycopgSync(Psycopg):
    name = "psycopg-sync"
    is_sync = True

    def provider(self, source: Any, **options: Any) -> Any:
        return Awaited(PsycopgSyncProvider(source, **options))

    async def connect(self, url: str, **options: Any) -> Any:
        return psycopg.connect(url, **_with_autocommit(options))

    async def close(self, connection: Any) -> None:
        connection.close()

    def pool(self, url: str, size: int = 2) -> Any:
        return awaited(ConnectionPool(url, min_size=size, max_size=size, kwargs={"row_factory": dict_row}, open=False))

    async def sql(self, connection: Any, text: str) -> list[tuple[Any, ...]]:
        cursor = psycopg.Cursor(connection).execute(text.encode())
        return cursor.fetchall() if cursor.description else []

    def block(self, connection: Any) -> Any:
        return awaited(connection.transaction())


def _with_autocommit(options: dict[str, Any]) -> dict[str, Any]:
    return {"autocommit": True, **options}


DRIVERS: list[Driver] = [Psycopg(), PsycopgSync(), Asyncpg()]
ASYNC_DRIVERS = [driver for driver in DRIVERS if not driver.is_sync]


class Awaited:
    """A sync provider that is awaited."""

    def __init__(self, provider: PsycopgSyncProvider) -> None:
        self.sync = provider
        self.check = provider.check
        self.in_transaction = provider.in_transaction

    def transaction(self, first: Any = None) -> Any:
        return AwaitedBlock(self.sync.transaction(first))

    def savepoint(self, connection: Any) -> Any:
        return awaited(self.sync.savepoint(connection))

    async def execute(self, connection: Any, command: Any) -> Any:
        return self.sync.execute(connection, command)

    async def close(self) -> None:
        self.sync.close()


class AwaitedBlock:
    """The block of a sync transaction, awaited."""

    def __init__(self, block: Any) -> None:
        self._block = block

    @property
    def answer(self) -> Any:
        return self._block.answer

    async def __aenter__(self) -> Any:
        return self._block.__enter__()

    async def commit_with(self, command: Any) -> bool:
        done: bool = await self._block.commit_with(command)
        return done

    async def __aexit__(self, *error: Any) -> None:
        self._block.__exit__(*error)


@asynccontextmanager
async def awaited(manager: Any) -> AsyncGenerator[Any]:
    with manager as value:
        yield value


FIRST = PgStatement("SELECT true")
"""For a transaction that begins with a command."""


def insert(number: int) -> PgStatement:
    return PgStatement("INSERT INTO t VALUES ($1::int)", (number,))


async def usable(driver: Driver, provider: Any) -> None:
    """The connection is back in the pool, outside of any transaction, and the driver believes so too."""
    async with provider.transaction(FIRST) as inside, driver.block(inside):
        await provider.execute(inside, insert(100))
