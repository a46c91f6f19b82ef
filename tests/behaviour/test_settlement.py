"""Group settlement: results are stored together, and no bad one hurts its neighbours."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from typing import Any

import psycopg
import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import (
    PATIENCE,
    SOON,
    Gate,
    Step,
    done,
    eventually,
    failures,
    job,
    patiently,
    running,
    start,
)
from tests.behaviour.watching import Points, watched

from queuert import Attempt, EntryJob, Handlers, Job, StorageError, Worker
from queuert.worker.claims import filling

pytestmark = pytest.mark.drivers


class Last(Job[int], name="last"):
    number: int


class First(EntryJob[int, Last], name="first"):
    number: int


def simple() -> tuple[Handlers[Any], list[int]]:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        return attempt.job.number

    return handlers, ran


async def test_many_results_are_settled_in_few_operations(setting: Setting) -> None:
    handlers, ran = simple()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 600)
        await patiently(Worker(client, handlers, concurrency=200, poll_interval=setting.poll_interval).drain())
        assert sorted(ran) == list(range(600))
        assert sum(points.sizes("settle")) == 600
        assert len(points.sizes("settle")) <= 6
        assert not await running(client)


async def test_results_of_all_kinds_share_a_group(setting: Setting) -> None:
    handlers, points, gate = Handlers[Any](), Points(), Gate()

    @handlers.handles(First, backoff=SOON, max_attempts=1)
    async def first(attempt: Attempt[First]) -> Last | int:
        await gate()
        if attempt.job.number == 1:
            raise RuntimeError("as agreed")
        return Last(number=attempt.job.number) if attempt.job.number == 2 else attempt.job.number

    @handlers.handles(Last)
    async def last(attempt: Attempt[Last]) -> int:
        return -attempt.job.number

    async with watched(setting.connect([First]), points) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [First(number=number) for number in range(3)])
        async with Worker(client, handlers, concurrency=3, poll_interval=setting.poll_interval) as worker:
            await eventually(lambda: _running_are(client, 3))
            gate.open()
            await patiently(worker.drain())
        assert points.sizes("settle")[0] == 3
        ended = [await client.get_chain(chain) for chain in chains]
        assert [chain.status for chain in ended if chain] == ["completed", "failed", "completed"]
        assert await client.wait(chains[2]) == -2


async def _running_are(client: Any, number: int) -> bool:
    return len(await running(client)) == number


async def test_one_bad_item_of_a_hundred(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """Its continuation cannot be stored: the id is taken. The others are settled, and it is retried."""
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(First, backoff=SOON)
    async def first(attempt: Attempt[First]) -> Last | int:
        job = attempt.job
        if job.number == 37 and attempt.number == 1:
            return Last(number=0).set(id=taken.id)
        return job.number

    @handlers.handles(Last)
    async def last(attempt: Attempt[Last]) -> int:
        return -1

    async with watched(setting.connect([First, Step]), points) as client:
        (taken,) = await start(client)
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [First(number=number) for number in range(100)])
        worker = Worker(client, handlers, concurrency=100, poll_interval=setting.poll_interval)
        async with worker:
            for number, chain in enumerate(chains):
                assert await client.wait(chain, timeout=45) == number
        assert [(await job(client, chain)).attempt_number for chain in chains] == [1] * 37 + [2] + [1] * 62
        ((_, error),) = failures(caplog, chains[37].id)
        assert type(error).__name__ == "JobIdExists"
        # 100 is cut in halves until one is left: at most two settlements on each of seven levels.
        assert len(points.sizes("settle")) <= 20


async def test_items_that_lost_their_fence_are_dropped(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    handlers, points = simple()[0], Points()
    caplog.set_level(logging.INFO, "queuert.worker")
    slow = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, slow:
        chains = await start(client, 3)
        gate = points.hold("settle")
        async with Worker(slow, handlers, concurrency=3, poll_interval=setting.poll_interval) as worker:
            await gate.arrival()
            async with client.transaction() as tx:
                await client.cancel(tx, chains[1])
            gate.open()
            await patiently(worker.drain())
        assert [(await job(client, chain)).status for chain in chains] == ["completed", "cancelled", "completed"]
        assert [chains[1].id in record.getMessage() for record in caplog.records].count(True) == 1


@pytest.mark.parametrize("point", ["settle", "settle.done"])
@pytest.mark.parametrize(
    "error",
    [
        StorageError("no database"),
        ConnectionResetError("gone"),
        TimeoutError("late"),
        sqlite3.OperationalError("disk I/O error"),
        psycopg.OperationalError("consuming input failed"),
        RuntimeError("a bug of the provider"),
    ],
    ids=lambda error: type(error).__module__.split(".")[0] + "." + type(error).__name__,
)
async def test_the_database_is_at_fault(setting: Setting, point: str, error: Exception) -> None:
    """Before the commit or after it: the group is tried again, and each job is run and settled once.

    So it is with errors that nobody has translated: a finished result is not lost because of them.
    """
    handlers, ran = simple()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        chains = await start(client, 20)
        points.fail(point, error, error)
        worker = Worker(client, handlers, concurrency=20, poll_interval=setting.poll_interval, recovery_backoff=SOON)
        await patiently(worker.drain())
        assert sorted(ran) == list(range(20))
        assert [(await job(client, chain)).attempt_number for chain in chains] == [1] * 20
        assert await done(client, 20)


async def test_work_created_by_a_commit_of_unknown_outcome_is_found(setting: Setting) -> None:
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(First)
    async def first(attempt: Attempt[First]) -> Last:
        return Last(number=attempt.job.number)

    @handlers.handles(Last)
    async def last(attempt: Attempt[Last]) -> int:
        return attempt.job.number

    async with watched(setting.connect([First]), points) as client:
        async with client.transaction() as tx:
            chain = await client.start(tx, First(number=3))
        points.fail_times("settle.done", 1)
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, recovery_backoff=SOON)
        await patiently(worker.drain())
        assert await client.wait(chain, timeout=PATIENCE) == 3
        assert len((await client.list_chain_jobs(chain)).items) == 2


@pytest.mark.parametrize("point", ["begin", "hold", "savepoint", "release", "settle", "commit", "committed"])
async def test_complete_takes_effect_once_wherever_the_database_fails(setting: Setting, point: str) -> None:
    """ "committed" is the COMMIT whose answer got lost: the job is done, and is not done again."""
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(First, backoff=SOON)
    async def first(attempt: Attempt[First]) -> Last:
        await asyncio.sleep(0)
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "first")
            return Last(number=attempt.number)

    @handlers.handles(Last)
    async def last(attempt: Attempt[Last]) -> int:
        return attempt.job.number

    flaky = watched(setting.connect([First]), points)
    async with setting.connect([First]) as client, flaky:
        async with client.transaction() as tx:
            chain = await client.start(tx, First(number=3))
        points.fail_times(point, 1)
        async with Worker(flaky, handlers, poll_interval=setting.poll_interval, recovery_backoff=SOON):
            assert await client.wait(chain, timeout=45) == (1 if point == "committed" else 2)
        assert await ledger(client) == ["first"]
        assert len((await client.list_chain_jobs(chain)).items) == 2


async def test_a_slot_is_free_as_soon_as_its_handler_returns(setting: Setting) -> None:
    handlers, ran = simple()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 5)
        gate = points.hold("settle")
        worker = Worker(client, handlers, concurrency=1, poll_interval=setting.poll_interval)
        async with worker:
            await eventually(lambda: len(ran) == 5)
            assert points.counts["settle.done"] == 0
            draining = asyncio.create_task(worker.drain())
            await asyncio.sleep(0)
            assert not draining.done()
            gate.open()
            await patiently(draining)
            assert await done(client, 5)


async def test_a_stop_waits_for_the_settlement(setting: Setting) -> None:
    handlers, ran = simple()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 5)
        gate = points.hold("settle")
        worker = Worker(client, handlers, concurrency=5, poll_interval=setting.poll_interval)
        await worker.start()
        await gate.arrival()
        stopping = asyncio.create_task(worker.stop())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not stopping.done()
        gate.open()
        assert await patiently(stopping)
        assert await done(client, 5)
        assert len(ran) == 5


async def test_unsettled_results_are_bounded(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filling, "STALE", 3600.0)  # what is given back waits to be settled, too, and would count
    monkeypatch.setattr(filling, "MAX_UNSETTLED", 200)
    handlers, ran = simple()
    points = Points(records=False)
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 500)
        gate = points.hold("settle")
        worker = Worker(client, handlers, concurrency=20, lease=60, renew_interval=0.05, poll_interval=0.05)
        async with worker:
            await eventually(lambda: len(ran) >= 200)
            turns = points.counts["reap.done"]
            await eventually(lambda: points.counts["reap.done"] >= turns + 3)
            assert len(ran) <= 220
            gate.open()
            await patiently(worker.drain())
        assert sorted(ran) == list(range(500))


async def test_a_result_that_comes_when_the_settler_is_just_done(setting: Setting) -> None:
    """The second handler ends in the same turn of the event loop in which the first group's settlement ends."""
    handlers, gates = Handlers[Any](), [Gate(), Gate()]
    points = Points()
    gates[0].open()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gates[attempt.job.number]()
        return attempt.job.number

    async with watched(setting.connect([Step]), points) as client:
        settled = points.hold("settle.done")
        chains = await start(client, 2)
        async with Worker(client, handlers, concurrency=2, poll_interval=setting.poll_interval) as worker:
            await gates[1].arrival()
            await settled.arrival()
            gates[1].open()
            settled.open()
            await patiently(worker.drain())
        assert [(await job(client, chain)).status for chain in chains] == ["completed", "completed"]
