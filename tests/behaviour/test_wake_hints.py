"""Who is woken by a notification, and who asks the database then."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from tests.behaviour.conftest import HINTS, Setting
from tests.behaviour.steps import SOON, Gate, Step, done, eventually, patiently, start
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Client, Handlers, NotifyUnavailable, Worker

pytestmark = pytest.mark.channels


def simple() -> tuple[Handlers[Any], list[int]]:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        return attempt.job.number

    return handlers, ran


async def crowd(stack: AsyncExitStack, setting: Setting, handlers: Handlers[Any], poll_interval: float) -> list[Points]:
    """Twenty idle workers, and what each of them asks."""
    everybody: list[Points] = []
    for _ in range(20):
        points = Points()
        everybody.append(points)
        client = await stack.enter_async_context(watched(setting.connect([Step]), points))
        await stack.enter_async_context(Worker(client, handlers, poll_interval=poll_interval))
    # Each has asked once when it began, and once more after it listens.
    await eventually(lambda: all(points.counts["next_available_in.done"] for points in everybody))
    for _ in range(5):
        await asyncio.sleep(0)
    return everybody


def asking(everybody: list[Points], before: list[Counter[str]]) -> int:
    """How many of them have asked the database for jobs since. All of them look for dead workers."""
    return sum(
        any(points.counts[name] != counts[name] for name in ("claim", "next_available_in"))
        for points, counts in zip(everybody, before, strict=True)
    )


async def test_a_few_jobs_do_not_wake_a_crowd(setting: Setting) -> None:
    if setting.notify not in HINTS:
        pytest.skip("this channel keeps no hints")
    handlers, ran = simple()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(setting.connect([Step]))
        everybody = await crowd(stack, setting, handlers, 3600)
        # On a busy machine, some may ask late because they have begun to listen.
        few = rounds = 0
        while few < 3 and rounds < 20:
            rounds += 1
            before = [points.counts.copy() for points in everybody]
            await start(client, 3)
            await eventually(partial(done, client, 3 * rounds))
            few += 1 <= asking(everybody, before) <= 3
        assert few == 3
        assert len(ran) == 3 * rounds


async def test_without_hints_everybody_asks_and_every_job_still_runs_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, ran = simple()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(setting.connect([Step]))
        if setting.notify in HINTS:
            bound: Any = client.sessions.channel.consume_wake_hint
            monkeypatch.setattr(type(bound.__self__), "consume_wake_hint", always)
        everybody = await crowd(stack, setting, handlers, 3600 if setting.notify else 0.05)
        before = [points.counts.copy() for points in everybody]
        await start(client, 3)
        await eventually(lambda: done(client, 3))
        await eventually(lambda: asking(everybody, before) == len(everybody))
        await start(client, 40)
        await eventually(lambda: done(client, 43))
        assert sorted(ran) == sorted([*range(3), *range(40)])


def has_run(ran: list[int], number: int) -> bool:
    return len(ran) == number


async def is_provided(client: Client[Any]) -> bool:
    """Put one hint on the channel. It may have lost its connection, if the machine stood still."""
    try:
        await client.sessions.channel.provide_wake_hints({"step": 1})
    except NotifyUnavailable:
        return False
    return True


async def always(self: Any, type_name: str) -> bool:
    return True


async def test_a_hint_that_is_lost_delays_nobody_past_the_poll(setting: Setting) -> None:
    """Somebody has taken it and died, or found that he may not claim: the others find the job when they poll."""
    if setting.notify not in HINTS:
        pytest.skip("this channel keeps no hints")
    handlers, ran = simple()
    async with (
        setting.connect([Step]) as client,
        setting.connect([Step], notify=None) as silent,
        Worker(client, handlers, poll_interval=0.2),
    ):
        await eventually(lambda: is_provided(client))
        assert await client.sessions.channel.consume_wake_hint("step")
        await start(silent)
        await client.sessions.channel.publish("job_scheduled", ["step"])
        await eventually(lambda: done(client, 1))
        assert ran == [0]


async def test_a_hint_that_is_lost_takes_nothing_from_the_next(setting: Setting) -> None:
    """Whoever comes for the next job finds the one before, too; nobody polls."""
    if setting.notify not in HINTS:
        pytest.skip("this channel keeps no hints")
    handlers, ran = simple()
    points = Points()
    async with (
        watched(setting.connect([Step]), points) as client,
        setting.connect([Step], notify=None) as silent,
        Worker(client, handlers, poll_interval=3600),
    ):
        await eventually(lambda: points.counts["next_available_in.done"])
        await eventually(lambda: is_provided(client))
        assert await client.sessions.channel.consume_wake_hint("step")
        await start(silent)
        await client.sessions.channel.publish("job_scheduled", ["step"])
        await start(client)
        await eventually(lambda: done(client, 2))
        assert ran == [0, 0]


async def test_a_capped_worker_that_takes_a_hint_delays_nobody_past_the_poll(setting: Setting) -> None:
    """It has a slot, but not for this type."""
    capped_handlers, gate = Handlers[Any](), Gate()

    @capped_handlers.handles(Step, concurrency=1)
    async def blocked(attempt: Attempt[Step]) -> int:
        await gate()
        return -1

    handlers, ran = simple()
    async with (
        setting.connect([Step]) as client,
        setting.connect([Step]) as other,
        Worker(client, capped_handlers, concurrency=2, poll_interval=0.1),
    ):
        await start(client)
        await gate.arrival()
        async with Worker(other, handlers, poll_interval=0.1):
            for number in range(1, 6):
                await start(client)
                await eventually(partial(has_run, ran, number))
        gate.open()


async def test_a_busy_worker_leaves_the_hint_to_others(setting: Setting) -> None:
    """It has no slot free: another one must get the job, though this one was told of it too."""
    busy_handlers, gate = Handlers[Any](), Gate()

    @busy_handlers.handles(Step)
    async def blocked(attempt: Attempt[Step]) -> int:
        await gate()
        return -1

    handlers, ran = simple()
    async with (
        setting.connect([Step]) as client,
        setting.connect([Step]) as other,
        Worker(client, busy_handlers, poll_interval=setting.poll_interval),
    ):
        await start(client)
        await gate.arrival()
        async with Worker(other, handlers, poll_interval=setting.poll_interval):
            await start(client)
            await eventually(lambda: ran == [0])
        gate.open()


async def test_a_worker_that_was_busy_finds_what_was_announced_meanwhile(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    ran: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        await gate()
        return 0

    async with setting.connect([Step]) as client:
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            await start(client)
            await gate.arrival()
            for _ in range(3):
                await start(client)
            gate.open()
            await eventually(lambda: done(client, 4))
        assert len(ran) == 4


@pytest.mark.parametrize("coalesce", [1, 7, 100])
async def test_a_flood_of_messages(setting: Setting, coalesce: int) -> None:
    handlers, ran = simple()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        worker = Worker(client, handlers, coalesce_notifies=coalesce, poll_interval=setting.poll_interval)
        async with worker:
            await eventually(lambda: points.counts["next_available_in.done"])
            claims = points.counts["claim"]
            for _ in range(50):
                await client.sessions.channel.publish("job_scheduled", ["step", "unknown-type"])
            await start(client, 2)
            await eventually(lambda: done(client, 2))
            await patiently(worker.drain())
            if setting.notify in ("in-process", "sqlite"):  # elsewhere they come one by one
                # 51 messages, so many at a time; two jobs, each its claim; and one for the drain.
                assert points.counts["claim"] - claims <= 51 // coalesce + 1 + 4
        assert ran == [0, 1]


async def test_a_job_that_becomes_due_is_claimed_without_a_poll(setting: Setting) -> None:
    handlers, ran = simple()
    async with setting.connect([Step]) as client:
        await start(client, 1, after=0.15)
        async with Worker(client, handlers, poll_interval=3600):
            await eventually(lambda: done(client, 1))
            if setting.notify:
                await start(client, 2, after=0.15)
                await eventually(lambda: done(client, 3))
        assert ran[0] == 0


async def test_retries_come_back_without_a_poll(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Step, backoff=SOON)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.number < 4:
            raise RuntimeError("once more")
        return attempt.number

    async with setting.connect([Step]) as client:
        (chain,) = await start(client)
        async with Worker(client, handlers, poll_interval=3600):
            assert await client.wait(chain, timeout=45) == 4
