"""Leases are renewed for everything a worker holds, together; what cannot be renewed is given up in time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, Gate, Looks, Step, eventually, failures, job, running, start
from tests.behaviour.watching import Points, watched

from queuert import Attempt, EntryJob, Handlers, Worker

LEASE = 1.5
RENEW = 0.1


class Slow(EntryJob[int], name="slow"):
    pass


def waiting_handler() -> tuple[Handlers[Any], Gate, list[int]]:
    handlers, gate, attempts = Handlers[Any](), Gate(), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        attempts.append(attempt.number)
        await gate()
        return attempt.job.number

    return handlers, gate, attempts


async def test_a_job_may_take_longer_than_its_lease(setting: Setting) -> None:
    handlers, gate, attempts = waiting_handler()
    points, looks = Points(), Looks()
    other = watched(setting.connect([Step]), points)
    async with (
        setting.connect([Step]) as client,
        other,
        Worker(client, handlers, lease=LEASE, renew_interval=RENEW, poll_interval=setting.poll_interval),
        Worker(other, handlers, lease=LEASE, renew_interval=RENEW, poll_interval=0.05),
    ):
        (chain,) = await start(client)
        await gate.arrival()
        first = (await job(client, chain)).leased_until
        assert first is not None

        async def lease_has_moved_on() -> bool:
            looks.note()
            until = (await job(client, chain)).leased_until
            return until is not None and (until - first).total_seconds() > LEASE

        async def is_reaped_again() -> bool:
            looks.note()
            return points.counts["reap.done"] > reaps

        await eventually(lease_has_moved_on)
        reaps = points.counts["reap.done"]
        await eventually(is_reaped_again)
        assert attempts == [1] or not looks.were_within(LEASE / 2)
        gate.open()
        assert await client.wait(chain, timeout=45) == 0


async def test_one_statement_renews_everything_once_per_interval(setting: Setting) -> None:
    handlers, gate, _ = waiting_handler()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        await start(client, 20)
        began = time.monotonic()
        worker = Worker(client, handlers, concurrency=20, lease=30, renew_interval=RENEW, poll_interval=3600)
        async with worker:
            await eventually(lambda: len(points.sizes("renew")) >= 5)
            elapsed = time.monotonic() - began
            sizes = points.sizes("renew")
            assert sizes == [20] * len(sizes)
            assert len(sizes) <= elapsed / RENEW + 1
            gate.open()
        assert not await running(client)


async def test_jobs_claimed_at_different_times_share_the_statement(setting: Setting) -> None:
    handlers, gate, attempts = waiting_handler()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        worker = Worker(client, handlers, concurrency=9, lease=30, renew_interval=RENEW, poll_interval=0.05)
        async with worker:
            began = time.monotonic()

            async def one_more() -> None:
                number, renewals = len(attempts), points.counts["renew"]
                await start(client)
                await eventually(lambda: len(attempts) > number)
                await eventually(lambda: points.counts["renew"] > renewals)

            for _ in range(9):
                await one_more()
            assert points.counts["renew"] <= (time.monotonic() - began) / RENEW + 1
            assert points.sizes("renew")[-1] in (8, 9)
            gate.open()


async def test_a_worker_that_holds_nothing_renews_nothing(setting: Setting) -> None:
    handlers, _, _ = waiting_handler()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        async with Worker(client, handlers, lease=60, renew_interval=0.02, poll_interval=0.01):
            await eventually(lambda: points.counts["reap.done"] > 5)
        assert points.counts["renew"] == 0


async def test_each_type_has_its_own_lease(setting: Setting) -> None:
    handlers, gate, _ = waiting_handler()

    @handlers.handles(Slow, lease=100, renew_interval=0.6)
    async def slow(attempt: Attempt[Slow]) -> int:
        await gate()
        return 0

    points = Points()
    async with watched(setting.connect([Step, Slow]), points) as client:
        async with client.transaction() as tx:
            await client.start(tx, Slow())
            await client.start(tx, Step())
        async with Worker(client, handlers, concurrency=2, lease=50, renew_interval=RENEW, poll_interval=0.05):

            def each_by_its_own_interval() -> bool:
                renewed = Counter(lease.duration for name, args in points.calls if name == "renew" for lease in args[0])
                assert renewed.keys() <= {50.0, 100.0}
                return renewed[50.0] > renewed[100.0] > 0

            await eventually(each_by_its_own_interval)
            gate.open()


async def test_renewals_that_fail_are_tried_again_within_the_lease(setting: Setting) -> None:
    handlers, gate, attempts = waiting_handler()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        points.fail_times("renew", 4)
        async with Worker(client, handlers, lease=20, renew_interval=0.2, poll_interval=setting.poll_interval):
            (chain,) = await start(client)
            await eventually(lambda: points.counts["renew.done"] >= 1)
            gate.open()
            assert await client.wait(chain, timeout=45) == 0
        assert attempts == [1]


@pytest.mark.drivers
async def test_a_lease_that_ends_unrenewed_aborts_the_attempt(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    handlers, points = Handlers[Any](), Points()
    reasons: list[Any] = []

    @handlers.handles(Step, backoff=SOON)
    async def step(attempt: Attempt[Step]) -> int:
        if reasons:
            return 2
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(attempt.signal.reason)
            points.mend("renew")
        return 0

    async with watched(setting.connect([Step]), points) as client:
        points.fail_times("renew", 100_000)
        async with Worker(client, handlers, lease=1, renew_interval=0.05, poll_interval=0.05):
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=45) == 2
        assert reasons == ["lease_lost"]
        code, error = failures(caplog, chain.id)[0]
        assert (code, type(error)) == ("LEASE_EXPIRED", TimeoutError)
        assert isinstance(error.__cause__, asyncio.CancelledError)


async def test_unsettled_results_are_renewed_and_not_reaped(setting: Setting) -> None:
    handlers, gate, attempts = waiting_handler()
    gate.open()
    points = Points()
    slow = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, slow:
        settling, looks = points.hold("settle"), Looks()
        other_points = Points()
        other = watched(setting.connect([Step]), other_points)
        async with other, Worker(slow, handlers, lease=LEASE, renew_interval=RENEW, poll_interval=0.05):
            (chain,) = await start(client)
            await settling.arrival()
            first = (await job(client, chain)).leased_until
            assert first is not None
            async with Worker(other, handlers, lease=LEASE, renew_interval=RENEW, poll_interval=0.05):

                async def lease_has_moved_on() -> bool:
                    looks.note()
                    until = (await job(client, chain)).leased_until
                    return until is not None and (until - first).total_seconds() > LEASE

                await eventually(lease_has_moved_on)
                reaps = (points.counts["reap.done"], other_points.counts["reap.done"])

                async def both_have_reaped() -> bool:
                    looks.note()
                    return points.counts["reap.done"] > reaps[0] and other_points.counts["reap.done"] > reaps[1]

                await eventually(both_have_reaped)
                held = await running(client)
                assert (held == [chain.id] and attempts == [1]) or not looks.were_within(LEASE / 2)
                settling.open()
                assert await client.wait(chain, timeout=45) == 0
