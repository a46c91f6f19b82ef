"""A server that is silent, without hanging up: statements with a limit end at their limit, and so does giving up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.adapters.postgres.drivers import DRIVERS, Driver, Watcher, statement
from tests.support.proxy import Proxy, proxy_to

from queuert.adapters.postgres.drivers.psycopg import PsycopgSyncProvider
from queuert.errors import StorageUnavailable
from queuert.ports.provider import TimeLimit

ONE = statement("SELECT 1")
SLEEP = statement("SELECT pg_sleep(60)")
SHORT = TimeLimit(0.3)
LONG = TimeLimit(20.0)
PATIENCE = 15.0
"""Seconds. Less than what psycopg and asyncpg take by themselves."""

ASYNC = [driver for driver in DRIVERS if not driver.is_sync]


@asynccontextmanager
async def proxied(url: str) -> AsyncGenerator[tuple[Proxy, str]]:
    """A proxy to a server that listens on a socket, and the URL that leads through it."""
    parts = urlsplit(url)
    directory = parse_qs(parts.query)["host"][0]
    async with proxy_to(f"{directory}/.s.PGSQL.5432") as proxy:
        yield proxy, f"postgresql://postgres@127.0.0.1:{proxy.port}{parts.path}"


async def silence(provider: Any, limit: TimeLimit = SHORT) -> None:
    with pytest.raises(StorageUnavailable, match=r"did not (answer|accept)|cannot be reached"):
        async with asyncio.timeout(PATIENCE):
            await provider.execute_within(limit, ONE)


@pytest.mark.parametrize("driver", ASYNC, ids=repr)
async def test_a_statement_ends_at_its_limit(driver: Driver, database_url: str) -> None:
    """And connections that were idle meanwhile are not used again: new ones work at once."""
    async with proxied(database_url) as (proxy, url):
        provider = driver.provider(url, max_size=3)
        async with provider.transaction(), provider.transaction():
            await provider.execute(None, ONE)
        proxy.freeze()
        await silence(provider)
        proxy.strand()
        for _ in range(3):
            assert await provider.execute_within(LONG, ONE) == [(1,)]
        async with asyncio.timeout(PATIENCE), provider.transaction() as tx:
            assert await provider.execute(tx, ONE) == [(1,)]
        await provider.close()


@pytest.mark.parametrize("driver", ASYNC, ids=repr)
async def test_a_new_connection_that_is_not_accepted(driver: Driver, database_url: str) -> None:
    async with proxied(database_url) as (proxy, url):
        provider = driver.provider(url, max_size=3)
        proxy.freeze()
        await silence(provider)
        proxy.thaw()
        assert await provider.execute_within(LONG, ONE) == [(1,)]
        await provider.close()


@pytest.mark.parametrize("driver", ASYNC, ids=repr)
async def test_of_the_users_pool(driver: Driver, database_url: str) -> None:
    """A connection that was given up does not go back into the pool."""
    async with proxied(database_url) as (proxy, url), driver.pool(url, 1) as pool:
        provider = driver.provider(pool)
        assert await provider.execute_within(LONG, ONE) == [(1,)]
        proxy.freeze()
        await silence(provider)
        proxy.strand()
        async with asyncio.timeout(PATIENCE):
            assert await provider.execute(None, ONE) == [(1,)]
        await provider.close()


@pytest.mark.parametrize("what", ["statement", "begin", "rollback"])
@pytest.mark.parametrize("driver", ASYNC, ids=repr)
async def test_a_cancellation_does_not_wait_for_the_server(driver: Driver, database_url: str, what: str) -> None:
    async with proxied(database_url) as (proxy, url):
        provider = driver.provider(url, max_size=1)
        await provider.execute(None, ONE)
        inside = asyncio.Event()

        async def work() -> None:
            if what == "statement":
                await provider.execute(None, SLEEP)
                return
            if what == "begin":
                proxy.freeze()
            async with provider.transaction():
                proxy.freeze()
                inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        if what == "rollback":
            await inside.wait()
        elif what == "statement":
            watch = Watcher(database_url)
            await watch.until("query LIKE '%pg_sleep%' AND state = 'active'")
            watch.close()
            proxy.freeze()
        else:
            while not proxy.held:
                await asyncio.sleep(0.005)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
        assert done
        assert task.cancelled()
        proxy.strand()
        assert await provider.execute_within(LONG, ONE) == [(1,)]
        await provider.close()


async def test_in_a_thread(database_url: str) -> None:
    async with proxied(database_url) as (proxy, url):
        provider = PsycopgSyncProvider(url, max_size=2)
        assert await asyncio.to_thread(provider.execute, None, ONE) == [(1,)]
        proxy.freeze()
        with pytest.raises(StorageUnavailable, match="did not answer within"):
            async with asyncio.timeout(PATIENCE):
                await asyncio.to_thread(provider.execute_within, SHORT, ONE)
        proxy.strand()
        assert await asyncio.to_thread(provider.execute_within, LONG, ONE) == [(1,)]
        await asyncio.to_thread(provider.close)


async def test_a_thread_whose_transaction_is_abandoned(database_url: str) -> None:
    async with proxied(database_url) as (proxy, url):
        provider = PsycopgSyncProvider(url, max_size=2)
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()

        def work() -> None:
            with provider.transaction() as connection:
                loop.call_soon_threadsafe(opened.set_result, connection)
                provider.execute(connection, SLEEP)

        working = asyncio.ensure_future(asyncio.to_thread(work))
        connection = await opened
        proxy.freeze()
        provider.abandon(connection)
        with pytest.raises(StorageUnavailable):
            async with asyncio.timeout(PATIENCE):
                await working
        proxy.strand()
        assert await asyncio.to_thread(provider.execute_within, LONG, ONE) == [(1,)]
        await asyncio.to_thread(provider.close)


@pytest.mark.parametrize("driver", ASYNC, ids=repr)
async def test_the_server_has_the_same_limit(driver: Driver, database_url: str) -> None:
    """On connections that only a worker's own statements use, and on no others."""
    show = statement("SELECT current_setting('statement_timeout')")
    provider = driver.provider(f"{database_url}&options=-c%20lock_timeout%3D100", max_size=4)
    before = await provider.execute(None, show)
    await provider.reserve(1.5)
    assert await provider.execute_within(LONG, show) == [("1500ms",)]
    assert await provider.execute_within(LONG._replace(urgent=True), show) == [("1500ms",)]
    assert await provider.execute(None, show) == before == [("0",)]
    async with provider.transaction() as tx:
        assert await provider.execute(tx, show) == before
    assert await provider.execute_within(LONG, statement("SELECT current_setting('lock_timeout')")) == [("100ms",)]
    with pytest.raises(StorageUnavailable, match="statement_timeout"):
        await provider.execute_within(LONG, SLEEP)
    await provider.unreserve()
    assert await provider.execute_within(LONG, show) == before
    await provider.close()
