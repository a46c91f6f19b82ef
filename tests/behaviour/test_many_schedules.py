"""Very many schedules that are due at one moment: three workers share them, in bounded pages, beside ordinary jobs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import pytest
from msgspec.structs import replace
from tests.behaviour.conftest import ALWAYS, Setting
from tests.behaviour.steps import Step, eventually, start
from tests.behaviour.test_schedules import Light, handlers
from tests.behaviour.watching import Points, watched
from tests.support.schedules import half_past, last_tick, make_due
from tests.support.worlds import run

from queuert import Attempt, Client, Handlers, Worker
from queuert.features.schedules.service import PAGE

WORKERS = 3


async def put_many(client: Client[Any], number: int) -> datetime:
    """Make so many schedules that are all due now, at one tick: one is put, the others are copies of its row."""
    times, state = half_past(), client._engine.state
    async with client.transaction() as tx:
        await client.put_schedule(tx, "s00000", times, Light())
    await make_due(client, "s00000")
    (row,) = (await run(client, state.get_schedules(["s00000"]))).rows
    assert row is not None
    copies = [
        replace(row, name=f"s{each:05}", incarnation=row.incarnation ^ each, version=0) for each in range(1, number)
    ]
    for first in range(0, number, 1000):
        assert all(await run(client, state.save_schedules(copies[first : first + 1000])))
    return last_tick(times)


async def next_ticks(client: Client[Any]) -> Counter[datetime | None]:
    found: Counter[datetime | None] = Counter()
    page = await client.list_schedules(limit=1000)
    while True:
        found.update(each.next_at for each in page.items)
        if page.next_cursor is None:
            return found
        page = await client.list_schedules(limit=1000, cursor=page.next_cursor)


def only_steps() -> Handlers[Any]:
    """Handlers for ordinary jobs, and none for those of the schedules: these are counted."""
    made = Handlers[Any]()

    @made.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    return made


@pytest.mark.parametrize("number", [200, pytest.param(10_000, marks=pytest.mark.soak)])
async def test_three_workers_share_what_is_due_in_bounded_pages(setting: Setting, number: int) -> None:
    if number > 1000 and (setting.state, setting.notify) not in ALWAYS:
        pytest.skip("so many schedules fire once on each database")
    all_points = [Points() for _ in range(WORKERS)]

    def fired() -> list[int]:
        return [sum(points.sizes("save_schedules")) for points in all_points]

    async with AsyncExitStack() as exits:
        client = await exits.enter_async_context(setting.connect([Step, Light]))
        at = await put_many(client, number)
        for points in all_points:
            other = await exits.enter_async_context(setting.connect([Step, Light]))
            worker = Worker(watched(other, points), only_steps(), poll_interval=0.2)
            await exits.enter_async_context(worker)
        jobs = await start(client, 20)

        # Ordinary jobs are not held up: they run meanwhile.
        for chain in jobs:
            await client.wait(chain, timeout=45)
        held_up_for = sum(fired())
        # The calls are counted before their transactions end. To read all schedules again and again takes longer
        # than to fire them.
        async with asyncio.timeout(180):
            while sum(fired()) < number:
                await asyncio.sleep(0.02)

        async def all_fired() -> bool:
            return (await next_ticks(client))[at] == 0

        await eventually(all_fired)
        assert (await client.stats())[0].pending == number
    pages = [
        [args[0] for name, args in points.calls if name == "due_schedules" and args[0] > 1] for points in all_points
    ]
    assert sum(fired()) == number, "each fired once"
    assert all(size <= PAGE for points in all_points for size in points.sizes("save_schedules"))
    assert all(limit <= PAGE for limits in pages for limit in limits)
    busy = sum(bool(size) for points in all_points for size in points.sizes("save_schedules"))
    # Pages are full, but for the last one of each worker.
    assert number / PAGE <= busy <= number / PAGE + WORKERS * 2
    if setting.state == "postgres" and number > 1000:
        assert min(fired()) > 0, fired()
        assert held_up_for < number, "the jobs had to wait until all schedules had fired"


async def test_a_firing_that_takes_long_holds_up_no_job(setting: Setting) -> None:
    """It stops in the middle of its transaction, with its schedules locked. The same worker runs jobs meanwhile."""
    if setting.state != "postgres":
        pytest.skip("the writer of a database with one writer is waited for")
    points, ran = Points(), list[int]()
    gate = points.hold("save_schedules")
    async with setting.connect([Step, Light]) as client:
        await put_many(client, 60)
        async with Worker(watched(client, points), handlers(ran), poll_interval=0.05):
            await gate.arrival()
            for chain in await start(client, 50):
                await client.wait(chain, timeout=45)
            assert not gate.is_open
            gate.open()

            async def all_fired() -> bool:
                return len((await client.list_chains(Light, limit=1000)).items) == 60

            await eventually(all_fired)
