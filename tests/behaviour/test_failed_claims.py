"""After a failed claim the worker gives back jobs that it does not know, but none that began here."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, Gate, Step, eventually, job, patiently, start
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Handlers, StorageRejected, Worker


async def test_what_an_earlier_run_has_left_is_not_given_back(setting: Setting) -> None:
    """Its handler still runs. Only the end of its lease puts the job back, and then the attempt counts."""
    points, handlers, gate = Points(), Handlers[Any](), Gate()
    ended = asyncio.Event()

    @handlers.handles(Step)
    async def step(_attempt: Attempt[Step]) -> int:
        while not ended.is_set():
            try:
                await gate()
            except asyncio.CancelledError:
                continue
            ended.set()
        return 1

    try:
        async with watched(setting.connect([Step]), points) as client:
            (chain,) = await start(client)
            worker = Worker(client, handlers, lease=60, renew_interval=0.05, poll_interval=0.05, shutdown_timeout=0)
            async with worker:
                await gate.arrival()
            before = await job(client, chain)
            points.fail_times("claim", 1)
            async with worker:
                await eventually(lambda: points.counts["release.done"] >= 2)
            assert await job(client, chain) == before
            assert before.status == "running"
    finally:
        gate.open()
        await patiently(ended.wait())


async def test_what_cannot_be_settled_is_not_given_back(setting: Setting) -> None:
    """The worker does not hold it any more. Only the end of its lease puts the job back, and the attempt counts."""
    points, handlers = Points(), Handlers[Any]()

    @handlers.handles(Step)
    async def step(_attempt: Attempt[Step]) -> int:
        raise RuntimeError("once more")

    async with watched(setting.connect([Step]), points) as client:
        (chain,) = await start(client)
        points.fail_times("claim", 1)
        points.fail("settle", *[StorageRejected("cannot be put back")] * 2)  # the second time, with a shorter error
        async with Worker(
            client, handlers, lease=60, renew_interval=0.05, poll_interval=0.05, recovery_backoff=SOON
        ) as worker:
            await eventually(lambda: points.counts["settle"] == 2)
            assert worker._run is not None
            claims = worker._run._attempts.claims
            await eventually(lambda: not claims)
            looks = points.counts["release.done"]
            await eventually(lambda: points.counts["release.done"] >= looks + 2)
            assert (await job(client, chain)).status == "running"


async def test_one_look_at_a_time(setting: Setting) -> None:
    """While the database hangs, looks do not pile up: claims would have to wait for all of them."""
    points, handlers = Points(), Handlers[Any]()

    @handlers.handles(Step)
    async def step(_attempt: Attempt[Step]) -> int:
        return 1

    async with watched(setting.connect([Step]), points) as client:
        points.fail_times("claim", 1)
        look = points.hold("release")
        async with Worker(client, handlers, lease=60, renew_interval=0.05, poll_interval=0.05) as worker:
            await look.arrival()
            assert worker._run is not None
            second = asyncio.create_task(worker._run._orphans.give_back())
            await asyncio.sleep(0)
            assert second.done()
            assert points.counts["release"] == 1
            look.open()
            (chain,) = await start(client)
            assert await patiently(client.wait(chain)) == 1
