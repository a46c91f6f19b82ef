"""The reaper gives the jobs of dead workers to others, and leaves everything else alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, Step, die_holding, done, end_lease, eventually, job, running, start
from tests.behaviour.watching import Points, watched

from queuert import Attempt, EntryJob, Handlers, Worker


class Other(EntryJob[int], name="other"):
    pass


async def test_the_job_of_a_dead_worker_is_run_again(setting: Setting) -> None:
    handlers = Handlers[Any]()
    seen: list[Any] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        seen.append((attempt.number, attempt.last_error))
        return 5

    async with setting.connect([Step]) as client:
        (chain,) = await start(client)
        assert await die_holding(client) == [chain.id]
        async with Worker(client, handlers, lease=30, renew_interval=0.05, poll_interval=setting.poll_interval):
            assert await client.wait(chain, timeout=45) == 5
        ((number, error),) = seen
        assert number == 2
        assert error["code"] == "LEASE_EXPIRED"


async def test_many_jobs_of_a_dead_worker(setting: Setting) -> None:
    handlers = Handlers[Any]()
    seen: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        seen.append(attempt.job.number)
        return 5

    async with setting.connect([Step]) as client:
        await start(client, 12)
        assert len(await die_holding(client, 12)) == 12
        worker = Worker(client, handlers, concurrency=2, renew_interval=0.05, poll_interval=setting.poll_interval)
        async with worker:
            await eventually(lambda: done(client, 12))
        assert sorted(seen) == list(range(12))


async def test_thousands_of_leases_are_taken_back_in_a_few_statements(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Claims come in between: the first jobs run before the last ones are taken back."""
    handlers, points = Handlers[Any](), Points()
    ran: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.number)
        return 5

    async with watched(setting.connect([Step]), points) as client:
        for _ in range(2):
            await start(client, 1000)
        assert len(await die_holding(client, 2000)) == 2000
        points.calls.clear()
        async with Worker(client, handlers, concurrency=100, poll_interval=3600):
            await eventually(lambda: len(ran) == 2000)
        assert ran == [2] * 2000
        names = [name for name, _ in points.calls if name in ("reap", "claim")]
        assert names.count("reap") <= 10, names
        last = len(names) - 1 - names[::-1].index("reap")
        assert "claim" in names[names.index("reap") : last], names
    assert sum("was taken back" in record.getMessage() for record in caplog.records) == 2000


async def test_a_lease_that_has_not_ended_is_left_alone(setting: Setting) -> None:
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return 5

    async with watched(setting.connect([Step]), points) as client:
        (chain,) = await start(client)
        await die_holding(client, lease=3600)
        async with Worker(client, handlers, lease=60, renew_interval=0.05, poll_interval=0.02):
            await eventually(lambda: points.counts["reap.done"] >= 5)
        assert await running(client) == [chain.id]
        assert (await job(client, chain)).attempt_number == 1


async def test_only_its_own_types_are_reaped(setting: Setting) -> None:
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(Other)
    async def other(attempt: Attempt[Other]) -> int:
        return 1

    async with watched(setting.connect([Step, Other]), points) as client:
        (chain,) = await start(client)
        await die_holding(client)
        async with Worker(client, handlers, lease=60, renew_interval=0.05, poll_interval=0.02):
            await eventually(lambda: points.counts["reap.done"] >= 5)
        assert await running(client) == [chain.id]


async def test_a_worker_does_not_reap_its_own_jobs(setting: Setting) -> None:
    """Their leases end because renewing fails; but their handlers are at work here, and nowhere else."""
    handlers, points, gate = Handlers[Any](), Points(), Gate()
    attempts: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        attempts.append(attempt.number)
        await gate()
        return 5

    async with watched(setting.connect([Step]), points) as client:
        points.fail_times("renew", 100_000)
        options: Any = {"lease": 60, "renew_interval": 0.05, "poll_interval": 0.02, "cancel_on_abort": False}
        async with setting.connect([Step]) as beside, Worker(client, handlers, concurrency=2, **options):
            (chain,) = await start(client)
            await gate.arrival()
            await end_lease(beside, chain)
            reaps = points.counts["reap.done"]
            await eventually(lambda: points.counts["reap.done"] >= reaps + 3)
            assert await running(client) == [chain.id]
            gate.open()
            assert await client.wait(chain, timeout=45) == 5
        assert attempts == [1]


async def test_the_reaper_runs_also_when_all_slots_are_busy(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.number

    async with setting.connect([Step]) as client:
        options: Any = {"renew_interval": 0.05, "poll_interval": setting.poll_interval, "prefetch": 0}
        async with Worker(client, handlers, lease=30, **options):
            (busy,) = await start(client)
            await gate.arrival()
            (dead,) = await start(client)
            assert await die_holding(client) == [dead.id]

            async def is_put_back() -> bool:
                return (await job(client, dead)).status == "pending"

            await eventually(is_put_back)
            assert await running(client) == [busy.id]
            gate.open()
            assert await client.wait(dead, timeout=45) == 2


async def test_a_late_worker_cannot_touch_a_job_that_was_reaped(setting: Setting) -> None:
    """It wakes up after the other one has finished: its result is dropped."""
    slow_handlers, handlers, gate = Handlers[Any](), Handlers[Any](), Gate()
    points = Points()

    @slow_handlers.handles(Step)
    async def slow_step(attempt: Attempt[Step]) -> int:
        await gate()
        return 1

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return 2

    slow = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, slow:
        renewing = points.hold("renew")
        late = Worker(slow, slow_handlers, lease=1, poll_interval=setting.poll_interval, cancel_on_abort=False)
        async with late:
            (chain,) = await start(client)
            await gate.arrival()
            await renewing.arrival()
            async with Worker(client, handlers, lease=30, renew_interval=0.05, poll_interval=0.05) as worker:
                assert await client.wait(chain, timeout=45) == 2
                gate.open()
                renewing.open()
                await asyncio.wait_for(late.drain(), 45)
                record = await job(client, chain)
                assert (record.output, record.completed_by, record.attempt_number) == (2, worker.id, 2)
