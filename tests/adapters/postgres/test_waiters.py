"""However many calls wait for a connection: there are never more connections than the pool has, and no call fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.adapters.postgres.drivers import DRIVERS, Driver, Watcher, statement
from tests.support.clients import clients_with

from queuert import Attempt, EntryJob, Handlers, Worker
from queuert.adapters.postgres.drivers.psycopg import PsycopgSyncProvider

SIZE = 4
ONE = statement("SELECT 1")
LONGER_THAN_A_PROBE = 2.5
"""Seconds. A pool that asks the server why it gets no connection does so after two."""

MANY = [100, pytest.param(5000, marks=pytest.mark.soak)]


class Noted(EntryJob[int], name="noted"):
    number: int


class Counter:
    """Counts the connections of the database, again and again; keeps the highest number.

    The server process of a connection that was closed takes a moment to end, so only those count that are there at
    two looks.
    """

    def __init__(self, watch: Watcher) -> None:
        self._watch = watch
        self.most = 0

    async def run(self) -> None:
        before: set[int] = set()
        while True:
            now = set(self._watch.others())
            self.most = max(self.most, len(now & before))
            before = now
            await asyncio.sleep(0.05)


@asynccontextmanager
async def counting(watch: Watcher) -> AsyncGenerator[Counter]:
    counter = Counter(watch)
    task = asyncio.create_task(counter.run())
    try:
        yield counter
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def database_url(migrated_url: str) -> str:
    return migrated_url


@pytest.fixture
def watcher(database_url: str) -> Any:
    found = Watcher(database_url)
    yield found
    found.close()


@pytest.mark.parametrize("number", MANY)
@pytest.mark.parametrize("driver", [driver for driver in DRIVERS if not driver.is_sync], ids=repr)
async def test_tasks(driver: Driver, database_url: str, watcher: Watcher, number: int) -> None:
    provider = driver.provider(database_url, max_size=SIZE)
    async with counting(watcher) as counter:
        async with AsyncExitStack() as held:
            for _ in range(SIZE):
                await held.enter_async_context(provider.transaction())
            calls = [asyncio.ensure_future(provider.execute(None, ONE)) for _ in range(number)]
            await asyncio.wait(calls, timeout=LONGER_THAN_A_PROBE)
            assert not any(call.done() for call in calls)
        assert await asyncio.gather(*calls) == [[(1,)]] * number
    assert counter.most == SIZE
    await provider.close()


@pytest.mark.parametrize("number", MANY)
async def test_threads(database_url: str, watcher: Watcher, number: int) -> None:
    provider = PsycopgSyncProvider(database_url, max_size=SIZE)
    stack = threading.stack_size(256 * 1024)
    try:
        with ThreadPoolExecutor(number) as threads:
            async with counting(watcher) as counter:
                async with AsyncExitStack() as held:
                    for _ in range(SIZE):
                        held.enter_context(provider.transaction())
                    calls = [threads.submit(provider.execute, None, ONE) for _ in range(number)]
                    waiting = [asyncio.wrap_future(call) for call in calls]
                    await asyncio.wait(waiting, timeout=LONGER_THAN_A_PROBE)
                    assert not any(call.done() for call in waiting)
                assert await asyncio.gather(*waiting) == [[(1,)]] * number
    finally:
        threading.stack_size(stack)
    assert counter.most == SIZE
    await asyncio.to_thread(provider.close)


CLIENTS = clients_with(Noted, SIZE, pool_size=SIZE, max_overflow=0, pool_timeout=120)


@pytest.mark.parametrize("number", MANY)
@pytest.mark.parametrize("made", CLIENTS)
async def test_waits_and_reads_beside_a_worker(made: str, database_url: str, watcher: Watcher, number: int) -> None:
    """The pool, and one listener."""
    handlers = Handlers[Any]()
    go = asyncio.Event()

    @handlers.handles(Noted)
    async def noted(attempt: Attempt[Noted, Any]) -> int:
        await go.wait()
        return attempt.job.number

    async with CLIENTS[made](database_url) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Noted(number=each) for each in range(number)])
        async with counting(watcher) as counter, Worker(client, handlers, concurrency=SIZE):
            waits = [asyncio.ensure_future(client.wait(chain, timeout=120)) for chain in chains]
            reads = [asyncio.ensure_future(client.get_chain(chain)) for chain in chains]
            assert all(await asyncio.gather(*reads))
            go.set()
            assert await asyncio.gather(*waits) == list(range(number))
        assert counter.most <= SIZE + 1
