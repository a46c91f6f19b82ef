"""A worker can be started, stopped and drained any number of times, in any order, from several tasks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, Gate, Step, done, eventually, job, patiently, running, start, tasks
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Handlers, Queue, SchemaTooNew, StorageError, Worker

pytestmark = pytest.mark.in_turn


def counting() -> tuple[Handlers[Any], list[int]]:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await asyncio.sleep(0)
        ran.append(attempt.job.number)
        return attempt.job.number

    return handlers, ran


async def test_start_and_stop_again_and_again(setting: Setting) -> None:
    handlers, ran = counting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        for turn in range(1, 6):
            await worker.start()
            await worker.start()
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=45) == 0
            assert await worker.stop()
            assert await worker.stop()
            assert len(ran) == turn
            assert not tasks()


async def test_a_stopped_worker_claims_nothing(setting: Setting) -> None:
    handlers, ran = counting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        async with worker:
            pass
        (chain,) = await start(client)
        for _ in range(20):
            await asyncio.sleep(0)
        assert (await job(client, chain)).status == "pending"
        assert ran == []


async def test_starts_and_stops_from_several_tasks_at_once(setting: Setting) -> None:
    handlers, ran = counting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        for _ in range(5):
            await patiently(asyncio.gather(*(worker.start() for _ in range(4))))
            await patiently(asyncio.gather(*(worker.stop() for _ in range(4))))
            await patiently(asyncio.gather(worker.start(), worker.stop(), worker.start(), worker.stop()))
        await worker.stop()
        assert not tasks()
        await start(client, 3)
        await worker.drain()
        assert sorted(ran) == [0, 1, 2]


async def test_a_start_waits_for_the_stop_under_way_and_then_works(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.job.number == 0:
            await gate()
        return attempt.job.number

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await worker.start()
        first = await start(client, 1)
        await gate.arrival()
        stopping = asyncio.create_task(worker.stop())
        starting = asyncio.create_task(worker.start())
        await asyncio.sleep(0)
        assert not starting.done()
        gate.open()
        assert await patiently(stopping)
        await patiently(starting)
        assert (await job(client, first[0])).status == "completed"
        chains = await start(client, 2)
        assert await client.wait(chains[1], timeout=45) == 1
        await worker.stop()


@pytest.mark.parametrize("waiters", [1, 3])
async def test_stop_during_start(setting: Setting, waiters: int) -> None:
    """The start is under way in the database when the stop comes: nothing is left running."""
    handlers, ran = counting()
    points = Points()
    client = watched(setting.connect([Step]), points)
    async with client:
        await start(client, 2)
        gate = points.hold("migrate")
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        starting = [asyncio.create_task(worker.start()) for _ in range(waiters)]
        await gate.arrival()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        gate.open()
        assert await patiently(stopping)
        await patiently(asyncio.gather(*starting))
        assert not tasks()
        assert ran == []
        await worker.drain()
        assert ran == [0, 1]


async def test_a_cancelled_start_leaves_nothing_running(setting: Setting) -> None:
    handlers, _ = counting()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        gate = points.hold("migrate")
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        starting = asyncio.create_task(worker.start())
        await gate.arrival()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await patiently(starting)
        assert not tasks()


async def test_a_start_that_fails_can_be_repeated(setting: Setting) -> None:
    handlers, ran = counting()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client)
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        points.fail("migrate", ValueError("not a storage error: no use in waiting"))
        with pytest.raises(ValueError, match="no use"):
            await worker.start()
        assert not tasks()
        await worker.drain()
        assert ran == [0]


async def test_drain_without_start_stops_again(setting: Setting) -> None:
    handlers, ran = counting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, concurrency=3, poll_interval=setting.poll_interval)
        await patiently(worker.drain())
        assert ran == []
        await start(client, 10)
        await patiently(worker.drain())
        assert sorted(ran) == list(range(10))
        assert not tasks()
        assert not await running(client)


async def test_drain_of_a_running_worker_leaves_it_running(setting: Setting) -> None:
    handlers, ran = counting()
    async with setting.connect([Step]) as client:
        async with Worker(client, handlers, poll_interval=setting.poll_interval) as worker:
            await start(client, 4)
            await patiently(worker.drain())
            assert await done(client, 4)
            (chain,) = await start(client, 1)
            await client.wait(chain, timeout=45)
        assert len(ran) == 5


async def test_drains_from_several_tasks(setting: Setting) -> None:
    """Each returns only when nothing is runnable, also if another one that started the worker has ended."""
    handlers, ran = counting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)

        async def start_and_drain(number: int) -> None:
            chains = await start(client, number)
            await worker.drain()
            for chain in chains:
                assert (await job(client, chain)).status == "completed"

        await patiently(asyncio.gather(*(start_and_drain(number) for number in range(1, 9))))
        assert len(ran) == sum(range(1, 9))
        assert not tasks()


async def test_a_start_during_a_drain_keeps_the_worker(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.job.number

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await start(client)
        draining = asyncio.create_task(worker.drain())
        await gate.arrival()
        await worker.start()
        gate.open()
        await patiently(draining)
        (chain,) = await start(client)
        assert await client.wait(chain, timeout=45) == 0
        await worker.stop()


async def test_a_stop_ends_a_drain(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.job.number

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await start(client, 5)
        draining = asyncio.create_task(worker.drain())
        await gate.arrival()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        gate.open()
        assert await patiently(stopping)
        await patiently(draining)
        assert await done(client, 1)
        assert not await running(client)


async def test_drain_waits_neither_for_paused_queues_nor_for_later_jobs(setting: Setting) -> None:
    handlers, ran = counting()
    async with setting.connect([Step]) as client:
        await start(client, 2)
        paused = Queue("default", max_concurrency=0)
        await patiently(Worker(client, handlers, queues=[paused], poll_interval=setting.poll_interval).drain())
        assert ran == []
        await start(client, 1, after=3600)
        await patiently(Worker(client, handlers, poll_interval=setting.poll_interval).drain())
        assert ran == [0, 1]


async def test_a_database_that_does_not_answer_at_start_up(setting: Setting) -> None:
    """Also one without a schema: the worker makes it when the database is there."""
    handlers, ran = counting()
    points = Points()
    client = watched(setting.connect([Step]), points)
    other = setting.connect([Step])
    client.sessions.open()  # entering it would make the schema
    try:
        points.fail_times("migrate", 3)
        points.fail_times("claim", 2)
        worker = Worker(client, handlers, poll_interval=0.02, recovery_backoff=SOON)
        await worker.start()
        await eventually(lambda: points.counts["migrate.done"])
        async with other:
            await start(other, 2)
            await eventually(lambda: done(other, 2))
        assert await worker.stop()
        assert ran == [0, 1]
    finally:
        await client.close()


async def test_an_error_that_waiting_cannot_mend_is_raised_at_start(setting: Setting) -> None:
    handlers, _ = counting()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        points.fail("migrate", SchemaTooNew(99, 1, 2))
        with pytest.raises(StorageError, match="schema version 99"):
            await Worker(client, handlers).start()
        assert not tasks()


async def test_a_drain_that_comes_while_the_worker_asks_whether_there_is_work(setting: Setting) -> None:
    """The answer is older than the job: it must not send the worker back to sleep."""
    handlers, ran = counting()
    points = Points()
    watching = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, watching:
        asking = points.hold("next_available_in.done")
        async with Worker(watching, handlers, poll_interval=3600) as worker:
            await asking.arrival()
            await start(client, 2)
            draining = asyncio.create_task(worker.drain())
            await asyncio.sleep(0)
            asking.open()
            await patiently(draining)
            assert ran == [0, 1]
