"""Stopping: nothing new is begun, what runs may finish, then it is aborted; nothing is left leased."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import (
    PATIENCE,
    SOON,
    Gate,
    Step,
    end_lease,
    eventually,
    job,
    patiently,
    running,
    start,
    tasks,
)
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Handlers, SyncAttempt, Worker
from queuert.worker import run

pytestmark = pytest.mark.drivers


def simple() -> tuple[Handlers[Any], list[int]]:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        return attempt.job.number

    return handlers, ran


@pytest.fixture
def patient_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, the last turn and the results are waited for."""
    monkeypatch.setattr(run, "SETTLE", (PATIENCE, PATIENCE))


@pytest.mark.channels
@pytest.mark.usefixtures("patient_stop")
@pytest.mark.parametrize("shutdown_timeout", [0, 30])
async def test_an_idle_worker_stops_cleanly(setting: Setting, shutdown_timeout: float) -> None:
    handlers, _ = simple()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, shutdown_timeout=shutdown_timeout, poll_interval=setting.poll_interval)
        await worker.drain()
        await worker.start()
        assert await worker.stop()


@pytest.mark.usefixtures("patient_stop")
@pytest.mark.parametrize("shutdown_timeout", [0, 30])
@pytest.mark.parametrize("point", ["claim", "claim.done"])
async def test_a_claim_under_way_is_given_back(setting: Setting, point: str, shutdown_timeout: float) -> None:
    handlers, ran = simple()
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        chains = await start(client, 3)
        gate = points.hold(point)
        worker = Worker(
            client, handlers, concurrency=2, poll_interval=setting.poll_interval, shutdown_timeout=shutdown_timeout
        )
        await worker.start()
        await gate.arrival()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        gate.open()
        assert await patiently(stopping)
        assert ran == []
        for chain in chains:
            record = await job(client, chain)
            assert (record.status, record.attempt_number, record.leased_by) == ("pending", 0, None)
        await worker.drain()
        assert ran == [0, 1, 2]
        assert [(await job(client, chain)).attempt_number for chain in chains] == [1, 1, 1]


async def test_running_handlers_are_awaited(setting: Setting) -> None:
    handlers, gate, began = Handlers[Any](), Gate(), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        began.append(attempt.job.number)
        await gate()
        return attempt.job.number + 1

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, concurrency=2, poll_interval=setting.poll_interval)
        await worker.start()
        chains = await start(client, 4)
        await eventually(lambda: len(began) == 2)
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        gate.open()
        assert await patiently(stopping)
        assert [(await job(client, chain)).status for chain in chains] == ["completed"] * 2 + ["pending"] * 2
        assert not tasks()


@pytest.mark.parametrize("where", ["outside", "in prepare", "in complete", "after complete"])
async def test_handlers_that_take_too_long_are_aborted_and_released(setting: Setting, where: str) -> None:
    handlers, gate = Handlers[Any](), Gate()
    reasons: list[Any] = []
    cleaned_up: list[str] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.may_have_run:
            assert attempt.number == 1, "a shutdown costs no attempt"
            async with attempt.complete() as tx:
                await write(attempt.client, tx, "second")
                return 2
        try:
            if where == "in prepare":
                async with attempt.prepare("atomic") as tx:
                    await write(attempt.client, tx, "first")
                    await gate()
            if where in ("in complete", "after complete"):
                async with attempt.complete() as tx:
                    await write(attempt.client, tx, "first")
                    if where == "in complete":
                        await gate()
            await gate()
            return 1
        finally:
            reasons.append(attempt.signal.reason)
            await asyncio.sleep(0)
            cleaned_up.append(where)

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, shutdown_timeout=0.01, poll_interval=setting.poll_interval)
        await worker.start()
        (chain,) = await start(client)
        await gate.arrival()
        assert await patiently(worker.stop()) is False
        assert reasons == ["shutdown"]
        assert cleaned_up == [where]
        record = await job(client, chain)
        assert (record.status, record.attempt_number, record.leased_by) == ("pending", 0, None)
        assert not tasks()
        assert await ledger(client) == []
        await worker.drain()
        assert await client.wait(chain, timeout=45) == 2
        assert await ledger(client) == ["second"]


async def test_a_handler_that_swallows_the_cancellation_may_still_finish(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        try:
            await gate()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return 7

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, shutdown_timeout=0, poll_interval=setting.poll_interval)
        await worker.start()
        (chain,) = await start(client)
        await gate.arrival()
        await patiently(worker.stop())
        assert await client.wait(chain, timeout=45) == 7
        assert not await running(client)


async def test_a_handler_that_will_not_end_does_not_keep_the_worker_from_stopping(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step, lease=3600)
    async def step(attempt: Attempt[Step]) -> int:
        while not gate.is_open:
            try:
                await gate()
            except asyncio.CancelledError:
                continue
        return 7

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, shutdown_timeout=0, poll_interval=setting.poll_interval)
        await worker.start()
        (chain,) = await start(client)
        await gate.arrival()
        assert await patiently(worker.stop()) is False
        assert await running(client) == [chain.id], "it may be at work: nobody else must have the job yet"
        gate.open()
        await eventually(lambda: not tasks())
        assert await running(client) == [chain.id], "the worker has stopped: it settles nothing any more"


async def test_a_stuck_thread_keeps_its_lease_and_the_worker_stops(setting: Setting) -> None:
    handlers, entered, leave = Handlers[Any](), threading.Event(), threading.Event()
    told: list[Any] = []

    @handlers.handles(Step, lease=3600)
    def step(attempt: SyncAttempt[Step]) -> int:
        entered.set()
        told.append(attempt.signal.wait_in_thread(45))
        leave.wait(45)
        return 7

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, shutdown_timeout=0, poll_interval=setting.poll_interval)
        await worker.start()
        (chain,) = await start(client)
        await eventually(entered.is_set)
        assert await patiently(worker.stop()) is False
        record = await job(client, chain)
        assert (record.status, record.leased_by) == ("running", worker.id)
        await eventually(lambda: told)
        assert told == ["shutdown"]
        leave.set()
        await eventually(lambda: not tasks())
        assert (await job(client, chain)).status == "running"


async def test_results_that_cannot_be_settled_are_left_to_their_leases(setting: Setting) -> None:
    handlers, ran = simple()
    points = Points()
    broken = watched(setting.connect([Step]), points)
    async with setting.connect([Step]) as client, broken:
        points.fail_times("settle", 10_000)
        worker = Worker(broken, handlers, shutdown_timeout=0, lease=60, poll_interval=0.02, recovery_backoff=SOON)
        await worker.start()
        (chain,) = await start(client)
        await eventually(lambda: points.counts["settle"] > 2)
        assert await patiently(worker.stop()) is False
        assert not tasks()
        assert await running(client) == [chain.id]
        await end_lease(client, chain)
        async with Worker(client, handlers, lease=30, renew_interval=0.05, poll_interval=0.02):
            assert await client.wait(chain, timeout=45) == 0
        assert ran == [0, 0]
        assert (await job(client, chain)).attempt_number == 2
