"""Caps hold exactly, in one worker and in a cluster, and what they held back runs as soon as there is room."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, Gate, Step, done, eventually, patiently, running, start, tasks
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Client, EntryJob, Handlers, Queue, Worker
from queuert.worker import run


class Light(EntryJob[int], name="light"):
    pass


class Tally:
    """How many handlers were at work at once, at most, in all workers together."""

    def __init__(self) -> None:
        self.at_work: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.ran: Counter[str] = Counter()

    async def work(self, name: str, client: Client[Any] | None = None) -> None:
        self.at_work[name] += 1
        self.most[name] = max(self.most[name], self.at_work[name])
        for _ in range(3):
            await asyncio.sleep(0)
        if client is not None:
            leased = len(await running(client))
            self.most["leased"] = max(self.most["leased"], leased)
        self.ran[name] += 1
        self.at_work[name] -= 1


def tallied(tally: Tally, watcher: Client[Any] | None = None, **options: Any) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step, **options)
    async def step(attempt: Attempt[Step]) -> int:
        await tally.work("step", watcher)
        return attempt.job.number

    return handlers


async def with_four_workers(setting: Setting, jobs: int, tally: Tally, **options: Any) -> None:
    """Four workers, each with a client of its own, work off so many steps."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(setting.connect([Step]))
        await start(client, jobs)
        for _ in range(4):
            own = await stack.enter_async_context(setting.connect([Step]))
            worker = Worker(own, tallied(tally, client), concurrency=10, poll_interval=0.02, **options)
            await stack.enter_async_context(worker)
        await eventually(lambda: done(client, jobs))


@pytest.mark.drivers
@pytest.mark.parametrize("cap", [1, pytest.param(3, marks=pytest.mark.soak)])
async def test_a_cluster_cap_is_exact_across_workers(setting: Setting, cap: int) -> None:
    tally = Tally()
    await with_four_workers(setting, 24, tally, cluster_cap=cap)
    assert tally.ran["step"] == 24
    assert tally.most["step"] <= cap
    assert tally.most["leased"] <= cap


@pytest.mark.drivers
@pytest.mark.parametrize("cap", [pytest.param(1, marks=pytest.mark.soak), 3])
async def test_a_queue_s_max_concurrency_is_exact_across_workers(setting: Setting, cap: int) -> None:
    tally = Tally()
    await with_four_workers(setting, 24, tally, queues=[Queue("default", max_concurrency=cap)])
    assert tally.ran["step"] == 24
    assert tally.most["step"] <= cap
    assert tally.most["leased"] <= cap


async def test_caps_count_unsettled_results(setting: Setting) -> None:
    """The handlers have returned, but nothing is settled: no further job may begin."""
    tally, points = Tally(), Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 6)
        gate = points.hold("settle")
        worker = Worker(client, tallied(tally), concurrency=6, cluster_cap=2, renew_interval=0.05, poll_interval=0.05)
        async with worker:
            await gate.arrival()
            turns = points.counts["reap.done"]
            await eventually(lambda: points.counts["reap.done"] >= turns + 3)
            assert tally.ran["step"] <= 2
            assert len(await running(client)) <= 2
            gate.open()
            await eventually(lambda: done(client, 6))


@pytest.mark.parametrize("limit", ["concurrency", "max_concurrency", "cluster_cap", "max_claim_per_worker"])
async def test_a_limit_that_has_room_again_is_used_at_once(setting: Setting, limit: str) -> None:
    """Polling would come much too late: the end of one job must be what begins the next."""
    tally = Tally()
    options: dict[str, Any] = {"poll_interval": 3600}
    handler_options: dict[str, Any] = {}
    if limit == "concurrency":
        handler_options["concurrency"] = 2
    elif limit == "max_concurrency":
        options["queues"] = [Queue("default", max_concurrency=2)]
    else:
        options[limit] = 2
    handlers = tallied(tally, **handler_options)
    gate = Gate()

    @handlers.handles(Light)
    async def light(attempt: Attempt[Light]) -> int:
        await gate()
        return 0

    async with setting.connect([Step, Light]) as client:
        await start(client, 20)
        async with client.transaction() as tx:
            occupying = await client.start(tx, Light(), priority=1)
        worker = Worker(client, handlers, concurrency=10, **options)
        await worker.start()
        # One job goes on all the time, so the worker never comes to rest.
        await gate.arrival()
        await eventually(lambda: done(client, 20))
        gate.open()
        assert await client.wait(occupying, timeout=45) == 0
        await worker.stop()
        assert tally.most["step"] <= 2
        assert not tasks()


async def test_the_concurrency_of_one_type_leaves_room_for_others(setting: Setting) -> None:
    tally, gate = Tally(), Gate()
    handlers = Handlers[Any]()

    @handlers.handles(Step, concurrency=1)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        await tally.work("step")
        return 0

    @handlers.handles(Light)
    async def light(attempt: Attempt[Light]) -> int:
        await tally.work("light")
        return 0

    async with setting.connect([Step, Light]) as client:
        await start(client, 5, priority=1)
        async with client.transaction() as tx:
            await client.start_many(tx, [Light() for _ in range(5)])
        async with Worker(client, handlers, concurrency=3, poll_interval=setting.poll_interval) as worker:
            await eventually(lambda: tally.ran["light"] == 5)
            await eventually(lambda: _running_are(client, 1))
            gate.open()
            await patiently(worker.drain())
        assert (tally.ran["step"], tally.most["step"]) == (5, 1)


async def test_concurrency_is_how_many_run_at_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SETTLE", (PATIENCE, PATIENCE))  # a worker that is stopped gives its jobs back
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return 0

    async with setting.connect([Step]) as client:
        await start(client, 12)
        for concurrency in (1, 5):
            async with Worker(client, handlers, concurrency=concurrency, poll_interval=0.02, shutdown_timeout=0):
                await eventually(partial(_running_are, client, concurrency))
        gate.open()
        await Worker(client, handlers, poll_interval=setting.poll_interval).drain()
        assert await done(client, 12)


async def _running_are(client: Client[Any], number: int) -> bool:
    return len(await running(client)) == number


async def test_max_claim_batch_limits_one_claim(setting: Setting) -> None:
    tally, points = Tally(), Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 10)
        worker = Worker(client, tallied(tally), concurrency=10, max_claim_batch=3, poll_interval=setting.poll_interval)
        await patiently(worker.drain())
        limits = [args[0].limit for name, args in points.calls if name == "claim"]
        assert max(limits) == 3
        assert tally.ran["step"] == 10


async def test_max_claim_per_worker_limits_what_is_held(setting: Setting) -> None:
    tally, points = Tally(), Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 12)
        gate = points.hold("settle")
        worker = Worker(
            client,
            tallied(tally),
            concurrency=10,
            max_claim_per_worker=4,
            renew_interval=0.05,
            poll_interval=0.05,
        )
        async with worker:
            await gate.arrival()
            turns = points.counts["reap.done"]
            await eventually(lambda: points.counts["reap.done"] >= turns + 3)
            assert len(await running(client)) == 4
            gate.open()
            await eventually(lambda: done(client, 12))
