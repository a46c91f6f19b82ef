"""A job that ends its process again and again takes no other job with it."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.poisoned_worker import POISON
from tests.behaviour.steps import PATIENCE, Gate, Step, die_holding, eventually, job, start
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Backoff, Chain, ChainFailed, Client, Handlers, JobError, Worker, why
from queuert.records.model import ALONE_AFTER

SOON = Backoff(initial=0.01)
HOUR = 3600.0


@asynccontextmanager
async def restarted(setting: Setting, seconds: float, deaths: list[int]) -> AsyncGenerator[None]:
    """Three worker processes, each started again when it has died."""

    async def one() -> None:
        while True:
            async with child("poisoned_worker", setting.url, str(seconds)) as worker:
                deaths.append(await asyncio.to_thread(worker._process.wait, PATIENCE + 20 * seconds))

    tasks = [asyncio.create_task(one()) for _ in range(3)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("seconds", [0.3, pytest.param(15.0, marks=pytest.mark.soak)])
async def test_one_job_kills_every_process_that_runs_it(setting: Setting, seconds: float) -> None:
    """Twenty healthy jobs complete, and the other one ends: it was lost three times, and no more."""
    if setting.state == "memory":
        pytest.skip("the data would die with the process")
    deaths: list[int] = []
    async with setting.connect([Step]) as client:
        healthy = await start(client, 10)
        async with client.transaction() as tx:
            poison = await client.start(tx, Step(number=POISON))
        healthy += await start(client, 10)
        async with restarted(setting, seconds, deaths):
            for each in healthy:
                await client.wait(each, timeout=PATIENCE + 10 * seconds)
            with pytest.raises(ChainFailed) as failed:
                await client.wait(poison, timeout=PATIENCE + 10 * seconds)
        assert failed.value.last_error is not None
        assert failed.value.last_error["code"] == "LEASE_EXPIRED"
        assert "3 times; max_losses is 3" in str(failed.value.last_error["message"])
        assert (await job(client, poison)).losses == 3
        assert all([(await job(client, each)).losses <= ALONE_AFTER for each in healthy])
        assert deaths.count(-signal.SIGSEGV) == 3


async def lose(client: Client[Any], chain: Chain[Any], times: int) -> None:
    """The only job that is due is lost with its worker so often."""
    state = client._engine.state
    for number in range(times):
        assert await die_holding(client) == [chain.id]
        if number >= ALONE_AFTER:
            row = await job(client, chain)
            await client._run((state.begin_alone(chain.id, row._row.token or 0), None))

        async def reaped() -> Any:
            error = b'{"code": "LEASE_EXPIRED", "message": "gone"}'
            return await client._run((state.reap(["step"], [], 10, error), None))

        await eventually(reaped)


async def test_losses_do_not_count_as_failures(setting: Setting) -> None:
    """A job with two attempts that was lost twice has two attempts left."""
    handlers = Handlers[Any](max_attempts=2, backoff=SOON)
    numbers: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        numbers.append(attempt.number)
        raise JobError("BAD", "not today")

    async with setting.connect([Step]) as client:
        (chain,) = await start(client)
        await lose(client, chain, 2)
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            with pytest.raises(ChainFailed):
                await client.wait(chain, timeout=PATIENCE)
        assert numbers == [3, 4]
        row = await job(client, chain)
        assert (row.attempt_number, row.losses, (row.last_error or {})["code"]) == (4, 2, "BAD")
        async with client.transaction() as tx:
            await client.retry(tx, chain)
        assert (await job(client, chain)).losses == 0


@pytest.mark.parametrize(("most", "lost"), [(None, 3), (1, 1), (5, 5)])
async def test_a_job_that_was_lost_too_often_fails(setting: Setting, most: int | None, lost: int) -> None:
    handlers = Handlers[Any](backoff=SOON)
    ran: list[int] = []

    @handlers.handles(Step, max_losses=most)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.number)
        return 5

    async with setting.connect([Step]) as client:
        (chain,) = await start(client)
        await lose(client, chain, lost)
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            with pytest.raises(ChainFailed) as failed:
                await client.wait(chain, timeout=PATIENCE)
        assert ran == []
        assert (failed.value.last_error or {})["code"] == "LEASE_EXPIRED"
        assert f"max_losses is {lost}" in str((failed.value.last_error or {})["message"])


async def test_the_first_loss_has_no_delay_and_the_second_one_has(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, points = Handlers[Any](backoff=Backoff(initial=HOUR, maximum=HOUR)), Points()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return 5

    async with watched(setting.connect([Step]), points) as client:
        (first,) = await start(client)
        assert await die_holding(client) == [first.id]
        async with Worker(client, handlers, poll_interval=0.02):
            assert await client.wait(first, timeout=PATIENCE) == 5
        (second,) = await start(client)
        await lose(client, second, 1)
        assert await die_holding(client) == [second.id]
        async with Worker(client, handlers, poll_interval=0.02):

            async def waits() -> bool:
                return (await job(client, second)).losses == 2

            await eventually(waits)
        row = await job(client, second)
        assert row.status == "pending"
        found = await client.why(second)
        assert why.Lost(2, alone=True) in found.reasons
        assert "it was lost with its worker 2 times: it may be what ends the process" in str(found)
        assert row.last_attempt_at is not None
        assert (row.scheduled_at - row.last_attempt_at).total_seconds() >= HOUR
    (said,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert said.getMessage().startswith(f"job {second.id} (step) was lost with its worker 2 times")


async def test_a_job_that_was_lost_twice_runs_alone(setting: Setting) -> None:
    """It begins when nothing else runs in its worker, and nothing begins beside it."""
    handlers, others, alone = Handlers[Any](backoff=SOON), Gate(), Gate()
    at_work: set[int] = set()
    beside: list[set[int]] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        at_work.add(attempt.job.number)
        beside.append(set(at_work))
        await (alone if attempt.job.number == POISON else others)()
        at_work.remove(attempt.job.number)
        return attempt.job.number

    async with setting.connect([Step]) as client:
        async with client.transaction() as tx:
            suspect = await client.start(tx, Step(number=POISON).set(priority=200))
        await lose(client, suspect, 2)
        before = await start(client, 2)
        async with Worker(client, handlers, concurrency=3, prefetch=0, max_claim_batch=2, poll_interval=0.02):
            await eventually(lambda: at_work == {0, 1})

            async def is_claimed() -> bool:
                return (await job(client, suspect)).status == "running"

            await eventually(is_claimed)
            assert at_work == {0, 1}
            after = await start(client, 2)
            others.open()
            await alone.arrival()
            assert [await client.wait(each, timeout=PATIENCE) for each in before] == [0, 1]
            assert at_work == {POISON}
            alone.open()
            assert await client.wait(suspect, timeout=PATIENCE) == POISON
            assert [await client.wait(each, timeout=PATIENCE) for each in after] == [0, 1]
    assert {POISON} in beside
    assert all(len(each) == 1 for each in beside if POISON in each)


async def test_what_is_claimed_with_it_is_given_back(setting: Setting) -> None:
    handlers = Handlers[Any](backoff=SOON)
    at_work: set[int] = set()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        at_work.add(attempt.job.number)
        assert attempt.job.number != POISON or at_work == {POISON}
        await asyncio.sleep(0)
        at_work.remove(attempt.job.number)
        return attempt.number

    async with setting.connect([Step]) as client:
        async with client.transaction() as tx:
            suspect = await client.start(tx, Step(number=POISON))
        await lose(client, suspect, 2)
        chains = await start(client, 10)
        async with Worker(client, handlers, concurrency=20, poll_interval=setting.poll_interval):
            assert await client.wait(suspect, timeout=PATIENCE) == 3
            assert [await client.wait(each, timeout=PATIENCE) for each in chains] == [1] * 10


async def test_a_worker_that_stops_gives_it_back(setting: Setting) -> None:
    """It had not begun: nothing of it has changed."""
    handlers, gate = Handlers[Any](backoff=SOON), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.number

    async with setting.connect([Step]) as client:
        (suspect,) = await start(client, priority=200)
        await lose(client, suspect, 2)
        (other,) = await start(client)
        before = await job(client, suspect)
        worker = Worker(client, handlers, concurrency=2, max_claim_batch=1, prefetch=0, poll_interval=0.02)
        async with worker:
            await gate.arrival()

            async def is_claimed() -> bool:
                return (await job(client, suspect)).status == "running"

            await eventually(is_claimed)
            stopping = asyncio.create_task(worker.stop())

            async def is_back() -> bool:
                return await job(client, suspect) == before

            await eventually(is_back)
            gate.open()
            assert await stopping
        assert (await job(client, other)).status == "completed"
