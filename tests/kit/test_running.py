"""`testing.running`: whole chains, in async and in sync code."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.kit.conftest import Place
from tests.kit.shop import JOBS, Charge, Rate, handlers

from queuert import Attempt, EntryJob, Every, Handlers, InvalidArgument, JobError, Schedules, SyncAttempt, testing
from queuert.testing import Clock


class Count(EntryJob[int, "Count"], name="count"):
    down_from: int


class Wait(EntryJob[None], name="wait"):
    pass


counting = Handlers[Any](max_attempts=3)


@counting.handles(Count)
def count(attempt: SyncAttempt[Count]) -> int | Count:
    if attempt.job.down_from < 0:
        raise JobError("NEGATIVE", "below zero")
    if attempt.job.down_from == 0:
        return 0
    with attempt.complete():
        return Count(down_from=attempt.job.down_from - 1)


async def test_a_chain_runs_to_its_end(place: Place) -> None:
    async with place.connect(JOBS) as client, testing.running(client, handlers) as run:
        chain = await client.submit(Charge(order_id=7))
        assert await run.output(chain) == "sent 7"
        assert [record.job_type for record in (await client.list_jobs(status="pending")).items] == []
        assert run.failures == []


def test_a_chain_runs_to_its_end_in_sync_code(place: Place) -> None:
    with place.connect_sync([Count]) as client, testing.running(client, counting) as run:
        chain = client.submit(Count(down_from=3))
        assert run.output(chain) == 0
        assert len(client.list_chain_jobs(chain).items) == 4


async def test_why_there_is_no_output(place: Place) -> None:
    async with place.connect(JOBS) as client, testing.running(client, handlers) as run:
        chain = await client.submit(Charge(order_id=7, amount=-1))
        with pytest.raises(AssertionError, match=r"job .* \(charge\) is pending") as raised:
            await run.output(chain)
        assert isinstance(raised.value.__cause__, JobError)
        (failure,) = run.failures
        assert (failure.job, failure.number, failure.chain_id) == (Charge(order_id=7, amount=-1), 1, chain.id)


def test_why_there_is_no_output_in_sync_code(place: Place) -> None:
    with place.connect_sync([Count]) as client, testing.running(client, counting) as run:
        chain = client.submit(Count(down_from=-1))
        with pytest.raises(AssertionError, match="the chain has no output") as raised:
            run.output(chain)
        assert isinstance(raised.value.__cause__, JobError)
        assert len(run.failures) == 1


async def test_a_job_that_does_not_end_is_named() -> None:
    stuck = Handlers[Any]()

    @stuck.handles(Wait)
    async def wait(attempt: Attempt[Wait]) -> None:
        await asyncio.Event().wait()

    async with Place("memory", "memory://").connect([Wait]) as client, testing.running(client, stuck) as run:
        await client.submit(Wait())
        with pytest.raises(AssertionError, match="running: wait "):
            await run.until_idle(timeout=timedelta(seconds=0.2))


def test_jobs_run_at_once_in_eager_mode(place: Place) -> None:
    with place.connect_sync([Count]) as client, testing.running(client, counting, eager=True):
        with client.transaction() as tx:
            chain = client.start(tx, Count(down_from=2))
        found = client.get_chain(chain)
        assert found is not None
        assert found.output == 0


def test_sync_code_refuses_async_handlers() -> None:
    with (
        Place("memory", "memory://").connect_sync(JOBS) as client,
        testing.running(client, handlers) as run,
    ):
        run.until_idle()
        client.submit(Charge(order_id=7))
        with pytest.raises(InvalidArgument, match="'charge', which is `async def`"):
            run.until_idle()


async def test_time_that_is_real_cannot_be_moved(clock: Clock) -> None:
    async with Place("memory", "memory://").connect(JOBS) as client, testing.running(client, handlers) as run:
        with pytest.raises(InvalidArgument, match=r"connect\(…, clock=testing.Clock\(\)\)"):
            await run.until_idle(skip_time=True)
        with pytest.raises(InvalidArgument, match="virtual"):
            await run.advance(10)


async def test_the_output_of_a_chain_by_its_id(place: Place) -> None:
    async with place.connect(JOBS) as client, testing.running(client, handlers) as run:
        chain = await client.submit(Charge(order_id=7))
        assert await run.output(chain.id) == "sent 7"
    with place.connect_sync([Count]) as sync, testing.running(sync, counting) as sync_run:
        assert sync_run.output(sync.submit(Count(down_from=1)).id) == 0
        with pytest.raises(AssertionError, match="the chain has no output"):
            sync_run.output(sync.submit(Count(down_from=-1)).id)


async def test_cleaning_under_a_worker_is_refused(place: Place) -> None:
    schedules = Schedules()
    schedules.every(timedelta(days=1), Charge(order_id=1), name="daily")
    async with place.connect(JOBS) as client:
        async with testing.running(client, handlers, schedules=schedules) as run:
            await run.until_idle()
            with pytest.raises(InvalidArgument, match="of workers that are running: testing"):
                await testing.clean(client)
            assert [each.name for each in (await client.list_schedules()).items] == ["daily"]
        await testing.clean(client)
        assert not (await client.list_schedules()).items


async def test_cleaning_leaves_nothing(place: Place) -> None:
    async with place.connect(JOBS) as client:
        for number in range(3):
            await client.submit(Charge(order_id=number), dedup=str(number))
        async with client.transaction() as tx:
            await client.pause(tx, Charge)
            await client.put_schedule(tx, "hourly", Every(timedelta(hours=1)), Charge(order_id=1))
        await testing.clean(client)
        assert not (await client.list_schedules()).items
        assert not (await client.list_jobs()).items
        assert not await client.list_pauses()
        assert not (await client.submit(Charge(order_id=1), dedup="1")).deduplicated
    with place.connect_sync(JOBS) as again:
        again.submit(Rate(currency="EUR"))
        testing.clean(again)
        assert not again.list_jobs().items
