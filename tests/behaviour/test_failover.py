"""A primary is killed under load, and its standby takes over: what is kept, by a ledger.

Each job writes a line into a table of the user's, in `complete()`. Whatever the standby knows of a job, its line must
be there as often as the job is completed: once. How much the standby knows depends on the kind of replication. So that
it depends on nothing else, the standby is cut off from the primary a moment before.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import pytest
from tests.behaviour.steps import SOON
from tests.support.pgbouncer import PgBouncer, binary, needs_pgbouncer
from tests.support.replication import Pair

import queuert
from queuert import Attempt, Client, EntryJob, Handlers, StorageError, Worker

SECONDS = float(os.environ.get("QUEUERT_FAILOVER_SECONDS", "60"))
"""How long there is load before and after, in the long form."""
PATIENCE = 120.0
LEASE = 10.0
"""Seconds. A statement has a third of it: on a busy machine, short leases end again and again."""
LOST = 10
"""Orders that are confirmed while the standby is cut off, without synchronous replication."""


class Order(EntryJob[int], name="order"):
    number: int


@pytest.fixture(params=["synchronous", "asynchronous"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(synchronous=request.param == "synchronous")
    try:
        yield made
    finally:
        made.remove()


class Connect(Protocol):
    def __call__(self, *, migrate: bool = False) -> Client[Any]: ...


class Shop:
    """Clients that start orders, and know which were confirmed; workers that run them."""

    def __init__(self) -> None:
        self.before: list[str] = []
        """Confirmed orders whose transaction was begun while the standby followed its primary."""
        self.cut_off: list[str] = []
        """The same, begun after the standby was cut off and before it took over. They may be confirmed after it, too:
        a transaction waits for its connection, and the notification that follows a commit."""
        self.after: list[str] = []
        """The same, begun after the standby had taken over."""
        self.stage = self.before
        """The list for orders that are begun now."""
        self.doubtful = 0
        """Starts that ended with an error: they may have been stored."""
        self.runs: Counter[str] = Counter()
        """How often a handler has begun: what it does outside of the database happens so often."""
        self._number = 0

    def handlers(self) -> Handlers[Any]:
        made = Handlers[Any](lease=LEASE, max_attempts=100, backoff=SOON)

        @made.handles(Order)
        async def order(attempt: Attempt[Order]) -> int:
            self.runs[attempt.chain_id] += 1
            async with attempt.complete() as tx:
                await _execute(tx.connection, f"INSERT INTO ledger VALUES ('{attempt.chain_id}')")
                return attempt.job.number

        return made

    @asynccontextmanager
    async def open(self, connect: Connect, *, workers: int = 2, starters: int = 3) -> AsyncGenerator[Client[Any]]:
        async with AsyncExitStack() as exits:
            client = await exits.enter_async_context(connect(migrate=True))
            await exits.enter_async_context(_ended_at_last(self._start(client) for _ in range(starters)))
            for _ in range(workers):
                other = await exits.enter_async_context(connect())
                await exits.enter_async_context(Worker(other, self.handlers(), concurrency=5, poll_interval=0.1))
            yield client

    async def _start(self, client: Client[Any]) -> None:
        while True:
            self._number += 1
            number, confirmed = self._number, self.stage
            try:
                async with client.transaction() as tx:
                    chain = await client.start(tx, Order(number=number))
            except StorageError:
                self.doubtful += 1
                await asyncio.sleep(0.05)
            else:
                confirmed.append(chain.id)
                await asyncio.sleep(0.002)

    async def confirm(self, more: int) -> None:
        """Wait until so many more are confirmed. The patience is for each of them."""
        confirmed = self.stage
        wanted = len(confirmed) + more
        while (number := len(confirmed)) < wanted:
            async with asyncio.timeout(PATIENCE):
                while len(confirmed) == number:
                    await asyncio.sleep(0.01)


@asynccontextmanager
async def _ended_at_last(works: Any) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _execute(connection: Any, text: str) -> None:
    await connection.execute(text)


async def _settled(pair: Pair) -> None:
    """Wait until nothing is left to do. The patience is for each job."""
    open_jobs = "SELECT count(*) FROM queuert_job WHERE status <> 'completed'"
    while (left := pair.standby.say(open_jobs)) != [(0,)]:
        async with asyncio.timeout(PATIENCE):
            while pair.standby.say(open_jobs) == left:
                await asyncio.sleep(0.1)


def directly(pair: Pair, scheme: str = "postgresql") -> Connect:
    """Clients know both servers."""
    return partial(queuert.connect, pair.url_of("postgres", scheme), jobs=[Order], migrate=False)


async def fail_over(pair: Pair, connect: Connect, load: int, moved: Callable[[], None] = lambda: None) -> None:
    """`moved`: what tells the clients that there is another server."""
    shop = Shop()
    pair.say("CREATE TABLE ledger (chain text)")
    async with shop.open(connect):
        await shop.confirm(load)
        await asyncio.to_thread(pair.cut_off)
        shop.stage = shop.cut_off
        if pair.synchronous:
            # Nothing is confirmed any more: commits wait for the standby.
            async with asyncio.timeout(PATIENCE):
                while pair.say("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") < [(3,)]:
                    await asyncio.sleep(0.01)
        else:
            await shop.confirm(LOST)
        only_on_primary = set(shop.cut_off)
        pair.kill_primary()
        await asyncio.to_thread(pair.standby.promote)
        moved()
        shop.stage = shop.after
        await shop.confirm(load)
    # No new orders. What the workers have left is taken back when its lease ends.
    async with connect() as client:
        async with Worker(client, shop.handlers(), concurrency=10, poll_interval=0.1):
            await _settled(pair)
        diagnosis = await client.doctor(full=True)
        assert diagnosis.healthy, diagnosis
    before, after = {*shop.before, *shop.cut_off}, set(shop.after)
    stored = {each for (each,) in pair.standby.say("SELECT id::text FROM queuert_job")}
    lines = Counter(each for (each,) in pair.standby.say("SELECT chain FROM ledger"))
    assert lines == Counter(stored), "every stored order has its line, once"
    assert after <= stored, "what was confirmed after the promotion is there"
    lost = before - stored
    if pair.synchronous:
        assert not lost, "what was confirmed is there"
    else:
        assert only_on_primary <= lost, "what was begun and confirmed after the standby was cut off is lost"
    print(  # noqa: T201
        f"{len(before)} confirmed before, {len(after)} after, {shop.doubtful} in doubt, {len(lost)} lost; "
        f"{len(stored)} stored and completed; handlers began {sum(shop.runs.values())} times, "
        f"{sum(number > 1 for each, number in shop.runs.items() if each in stored)} of them more than once"
    )


@pytest.mark.parametrize("scheme", ["postgresql", pytest.param("postgresql+asyncpg", marks=pytest.mark.soak)])
async def test_a_standby_takes_over(pair: Pair, scheme: str) -> None:
    await fail_over(pair, directly(pair, scheme), 40)


@needs_pgbouncer
@pytest.mark.parametrize("scheme", ["postgresql", pytest.param("postgresql+asyncpg", marks=pytest.mark.soak)])
async def test_a_standby_takes_over_behind_pgbouncer(pair: Pair, scheme: str) -> None:
    """Clients know only PgBouncer, which is given the new server. Only the channel needs a direct connection."""
    bouncer = PgBouncer(str(binary()), pair.primary.url)
    try:
        connect = partial(
            queuert.connect,
            bouncer.through(pair.primary.url).replace("postgresql", scheme, 1),
            jobs=[Order],
            prepare=False,
            listen_url=pair.url_of("postgres"),
            migrate=False,
        )
        await fail_over(pair, connect, 40, lambda: bouncer.point_to(pair.standby.url))
    finally:
        bouncer.stop()


@pytest.mark.soak
async def test_a_standby_takes_over_under_long_load(pair: Pair) -> None:
    await fail_over(pair, directly(pair), int(SECONDS * 100))
