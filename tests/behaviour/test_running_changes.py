"""Chains that are changed from outside while a worker is at work on them, or on others."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.steps import SOON, Gate, Step, done, eventually, job, patiently, running, start

from queuert import Attempt, Chain, EntryJob, Handlers, Job, Worker

pytestmark = pytest.mark.channels


class After(EntryJob[int], name="after"):
    step: Chain[Step]


class Approve(Job[str], name="approve"):
    pass


class Ask(EntryJob[str, Approve], name="ask"):
    pass


def numbered() -> tuple[Handlers[Any], list[int]]:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        return attempt.job.number

    return handlers, ran


async def test_a_triggered_job_runs_at_once(setting: Setting) -> None:
    handlers, ran = numbered()
    async with setting.connect([Step]) as client:
        (chain,) = await start(client, 1, after=3600)
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            await start(client, 2)
            await eventually(lambda: done(client, 2))
            async with client.transaction() as tx:
                await client.trigger(tx, chain)
            assert await client.wait(chain, timeout=45) == 0
        assert sorted(ran) == [0, 0, 1]


async def test_a_failed_chain_is_retried_by_the_running_worker(setting: Setting) -> None:
    handlers, works = Handlers[Any](), asyncio.Event()
    attempts: list[int] = []

    @handlers.handles(Step, backoff=SOON, max_attempts=2)
    async def step(attempt: Attempt[Step]) -> int:
        attempts.append(attempt.number)
        if not works.is_set():
            raise RuntimeError("not yet")
        return 1

    async with setting.connect([Step]) as client:
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            (chain,) = await start(client)

            async def failed() -> bool:
                return (await job(client, chain)).status == "failed"

            await eventually(failed)
            works.set()
            async with client.transaction() as tx:
                await client.retry(tx, chain)
            assert await client.wait(chain, timeout=45) == 1
        assert attempts == [1, 2, 1]


async def test_what_is_cancelled_or_deleted_before_its_turn_never_runs(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    ran: list[int] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        await gate()
        return 0

    async with setting.connect([Step]) as client:
        async with Worker(client, handlers, poll_interval=setting.poll_interval) as worker:
            chains = await start(client, 4)
            await gate.arrival()
            async with client.transaction() as tx:
                await client.cancel(tx, chains[1])
                await client.delete(tx, chains[2])
            gate.open()
            await patiently(worker.drain())
        assert ran == [0, 3]


async def test_a_change_that_is_rolled_back_aborts_nothing(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    reasons: list[Any] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        reasons.append(attempt.signal.reason)
        return 5

    async with setting.connect([Step]) as client:
        async with Worker(client, handlers, poll_interval=setting.poll_interval):
            (chain,) = await start(client)
            await gate.arrival()
            try:
                async with client.transaction() as tx:
                    await client.cancel(tx, chain)
                    raise KeyError("on second thoughts")
            except KeyError:
                gate.open()
            assert await client.wait(chain, timeout=45) == 5
        assert reasons == [None]


async def test_a_dependent_is_freed_by_a_take_over_of_a_running_job(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return 1

    @handlers.handles(After)
    async def after(attempt: Attempt[After]) -> int:
        return attempt.job.step.output * 2

    async with setting.connect([Step, After]) as client:
        async with Worker(client, handlers, concurrency=2, lease=3600, poll_interval=setting.poll_interval):
            async with client.transaction() as tx:
                first = await client.start(tx, Step())
                second = await client.start(tx, After(step=first))
            await gate.arrival()
            async with client.transaction() as tx, client.take_over(tx, first, Step) as current:
                await current.settle(21)
            assert await client.wait(second, timeout=45) == 42
            gate.open()
        assert await client.wait(first) == 21
        assert not await running(client)


async def test_an_approval_without_a_worker_while_one_runs(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Ask)
    async def ask(attempt: Attempt[Ask]) -> Approve:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "asked")
            return Approve().set(after=3600)

    @handlers.handles(Approve)
    async def approve(attempt: Attempt[Approve]) -> str:
        return "too late"

    async with setting.connect([Ask]) as client:
        async with Worker(client, handlers, poll_interval=setting.poll_interval) as worker:
            async with client.transaction() as tx:
                chain = await client.start(tx, Ask())
            await eventually(lambda: _has_come_to(client, chain, 2))
            await patiently(worker.drain())
            async with client.transaction() as tx, client.take_over(tx, chain, Approve) as current:
                await current.settle("approved")
            assert await client.wait(chain, timeout=45) == "approved"
        assert await ledger(client) == ["asked"]


async def _has_come_to(client: Any, chain: Chain[Any], jobs: int) -> bool:
    return len((await client.list_chain_jobs(chain)).items) == jobs
