"""Clocks that jump forwards and backwards by an hour, three workers at once, and chains that end at any time.

The times are drawn at random. What must be true afterwards is counted from the outside: by the ids of the chains.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from random import Random
from typing import Any

import pytest
from tests.behaviour.steps import Step
from tests.machine.adapters import async_memory, async_sqlite
from tests.machine.postgres import async_postgres
from tests.machine.world import Clock
from tests.support.worlds import run

from queuert import After, Client, Cron, Every
from queuert.adapters.in_process import NoNotify
from queuert.base.statuses import TERMINAL
from queuert.engine.transaction import Hooks
from queuert.features.schedules.firing import Outrun, cancel_overlapped, fire_due
from queuert.features.schedules.stored import state_of
from queuert.jobs import Registry
from queuert.records.schedules import read_chain_id

HOUR = timedelta(hours=1)
Factory = Callable[[Clock], AbstractContextManager[Any]]
FACTORIES: dict[str, Factory] = {"memory": async_memory, "sqlite": async_sqlite, "postgres": async_postgres}

TIMES: list[Cron | Every] = [
    Every(timedelta(minutes=20)),
    Every(timedelta(hours=2), jitter=timedelta(minutes=90)),
    Cron("*/7 * * * *", tz="Europe/Berlin"),
    Cron("30 1 * * *", tz="America/New_York"),
]


QUICK = {"memory": 4, "sqlite": 2, "postgres": 1}
"""How many seeds `make test` tries. `make soak` tries more."""
SOAKED = 20

each_seed = pytest.mark.parametrize(
    ("factory", "seed"),
    [
        pytest.param(factory, seed, id=f"{name}-{seed}", marks=() if seed < QUICK[name] else pytest.mark.soak)
        for name, factory in FACTORIES.items()
        for seed in range(SOAKED)
    ],
)


class Story:
    """One schedule, and everything that happens to it."""

    def __init__(self, adapter: Any, clock: Clock, seed: int) -> None:
        self.clock, self.random = clock, Random(seed)
        self.clients = [Client(adapter, NoNotify(), Registry([Step])) for _ in range(3)]
        self.latest = clock.now
        """The latest time that any worker has seen."""

    @property
    def client(self) -> Client[Any]:
        return self.clients[0]

    async def __aenter__(self) -> Story:
        for client in self.clients:
            await client.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        for client in self.clients:
            await client.__aexit__(*error)

    async def put(self, times: Any, **options: Any) -> None:
        async with self.client.transaction() as tx:
            await self.client.put_schedule(tx, "s", times, Step(), **options)

    async def fire(self) -> None:
        """Three workers wake up, and go on until nothing is due."""
        self.latest = max(self.latest, self.clock.now)
        await asyncio.gather(*(self._fire(client) for client in self.clients))

    async def _fire(self, client: Client[Any]) -> None:
        seen = 1
        while seen:
            try:
                fired = await run(client, fire_due(client._engine, Hooks(), 50, []))
            except Outrun:
                continue
            seen = fired.seen
            for name in fired.cancelling:
                await run(client, cancel_overlapped(client._engine, Hooks(), name))

    async def chains(self) -> list[tuple[datetime, str, str]]:
        """The ticks that fired: with their chains, and the status of these."""
        found: list[tuple[datetime, str, str]] = []
        cursor = None
        while True:
            page = await self.client.list_chains(limit=1000, cursor=cursor)
            for chain in page.items:
                known = read_chain_id(chain.id)
                assert known is not None
                found.append((known.at, chain.id, chain.status or ""))
            cursor = page.next_cursor
            if cursor is None:
                return sorted(found)

    async def open_chains(self) -> list[str]:
        return [chain for _, chain, status in await self.chains() if status not in TERMINAL]

    async def end_some(self) -> None:
        for chain in await self.open_chains():
            if self.random.random() < 0.5:
                async with self.client.transaction() as tx:
                    await self.client.cancel(tx, chain)

    def pass_time(self) -> None:
        minutes = self.random.choice([0, 1, 7, 20, 45, 60, 60, 150, -60, -60, -5])
        self.clock.now += timedelta(minutes=minutes, seconds=self.random.randrange(60))

    async def horizon(self) -> datetime:
        (row,) = (await run(self.client, self.client._engine.state.get_schedules(["s"]))).rows
        assert row is not None
        return state_of(row).horizon


@each_seed
@pytest.mark.parametrize("times", TIMES, ids=str)
async def test_no_tick_is_repeated_and_none_is_lost(factory: Factory, times: Cron | Every, seed: int) -> None:
    clock = Clock()
    made = clock.now
    with factory(clock) as adapter:
        async with Story(adapter, clock, seed) as story:
            await story.put(times, catch_up="all", catch_up_max=10_000)
            before = await story.horizon()
            for _ in range(15):
                story.pass_time()
                await story.fire()
                assert before <= (before := await story.horizon())
            fired = [at for at, _, _ in await story.chains()]
            due = [tick.at for tick in times.last_ticks(story.latest, 10_000, after=made, name="s")
                   if tick.due <= story.latest]  # fmt: skip
            assert fired == due


@each_seed
@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
@pytest.mark.parametrize("overlap", ["skip", "queue", "cancel"])
async def test_chains_never_overlap(factory: Factory, overlap: Any, catch_up: Any, seed: int) -> None:
    clock = Clock()
    times = Every(timedelta(minutes=20))
    made = clock.now
    with factory(clock) as adapter:
        async with Story(adapter, clock, seed) as story:
            await story.put(times, catch_up=catch_up, overlap=overlap)
            for _ in range(20):
                story.pass_time()
                await story.fire()
                assert len(await story.open_chains()) <= 1
                await story.end_some()
                await story.fire()
                assert len(await story.open_chains()) <= 1
            fired = [at for at, _, _ in await story.chains()]
            ticks = {tick.at for tick in times.last_ticks(story.latest, 10_000, after=made)}
            assert fired or catch_up == "none" or not ticks  # the clock may only have gone back
            assert set(fired) <= ticks
            schedule = await story.client.get_schedule("s")
            assert schedule is not None
            waiting = 0 if schedule.queued is None else 1
            if catch_up == "all":
                # Each tick has fired, was skipped, or waits.
                assert len(fired) + schedule.skips + waiting == len(ticks)


@each_seed
async def test_after_never_overlaps_and_goes_on(factory: Factory, seed: int) -> None:
    clock = Clock()
    with factory(clock) as adapter:
        async with Story(adapter, clock, seed) as story:
            await story.put(After(timedelta(minutes=10)))
            for _ in range(20):
                await story.fire()
                assert len(await story.open_chains()) <= 1
                await story.end_some()
                story.pass_time()
            # Whatever the clock did: it goes on, once it shows a later time than ever before.
            for chain in await story.open_chains():
                async with story.client.transaction() as tx:
                    await story.client.cancel(tx, chain)
            before = len(await story.chains())
            for _ in range(3):
                clock.now = max(clock.now, story.latest) + HOUR
                await story.fire()
            assert len(await story.chains()) == before + 1
            assert len(await story.open_chains()) == 1
