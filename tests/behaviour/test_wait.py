"""Waiting for chains that a worker ends, in each way a chain can end."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, patiently
from tests.behaviour.working import begin, output, working

from queuert import (
    Attempt,
    ChainCancelled,
    ChainExpired,
    ChainFailed,
    ChainNotFound,
    EntryJob,
    Handlers,
    WaitTimeout,
)

pytestmark = pytest.mark.channels


class Work(EntryJob[int, "Work"], name="work"):
    number: int = 0


def gated(handlers: Handlers[Any], gate: Gate) -> None:
    @handlers.handles(Work, max_attempts=1)
    async def work(attempt: Attempt[Work]) -> int:
        await gate()
        if attempt.job.number < 0:
            raise RuntimeError("negative")
        return attempt.job.number


async def test_many_wait_for_one_and_one_for_many(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    gated(handlers, gate)
    async with working(setting, [Work], handlers, concurrency=5) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Work(number=number) for number in range(20)])
        waiting = [asyncio.create_task(output(client, chain)) for chain in [*chains, *[chains[0]] * 10]]
        await gate.arrival()
        assert not any(task.done() for task in waiting)
        gate.open()
        assert await patiently(asyncio.gather(*waiting)) == [*range(20), *[0] * 10]


async def test_each_end_is_told_to_those_who_wait(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    gated(handlers, gate)
    async with working(setting, [Work], handlers, concurrency=4) as client:
        async with client.transaction() as tx:
            failing = await client.start(tx, Work(number=-1))
            cancelled, deleted = await client.start_many(tx, [Work(), Work()])
        await gate.arrival()
        expiring = await begin(client, Work(), after=0.05, deadline=datetime(2020, 1, 1, tzinfo=UTC))
        waiting = [asyncio.create_task(output(client, chain)) for chain in (failing, cancelled, deleted, expiring)]
        await asyncio.sleep(0)
        async with client.transaction() as tx:
            await client.cancel(tx, cancelled)
            await client.delete(tx, deleted)
        gate.open()
        ends = await patiently(asyncio.gather(*waiting, return_exceptions=True))
        assert [type(end) for end in ends] == [ChainFailed, ChainCancelled, ChainNotFound, ChainExpired]
        assert ends[0].last_error["message"] == "negative"


async def test_a_wait_that_is_over_before_the_chain_does_it_no_harm(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()
    gated(handlers, gate)
    async with working(setting, [Work], handlers) as client:
        chain = await begin(client, Work(number=7))
        await gate.arrival()
        with pytest.raises(WaitTimeout):
            await client.wait(chain, timeout=0.01)
        gone = asyncio.create_task(output(client, chain))
        await asyncio.sleep(0)
        gone.cancel()
        gate.open()
        assert await output(client, chain) == 7


async def test_a_wait_lasts_over_retries_and_continuations(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Work)
    async def work(attempt: Attempt[Work]) -> Work | int:
        if attempt.number == 1:
            raise RuntimeError("first")
        return Work(number=attempt.job.number - 1) if attempt.job.number else 99

    async with working(setting, [Work], handlers) as client:
        assert await output(client, await begin(client, Work(number=3))) == 99


async def test_a_handler_may_wait_for_another_chain_between_its_phases(setting: Setting) -> None:
    handlers = Handlers[Any]()

    class Parent(EntryJob[int], name="parent"):
        pass

    @handlers.handles(Parent)
    async def parent(attempt: Attempt[Parent]) -> int:
        async with attempt.prepare("staged") as tx:
            child = await attempt.client.start(tx, Work(number=20))
        return 1 + await attempt.client.wait(child, timeout=45)

    @handlers.handles(Work)
    async def work(attempt: Attempt[Work]) -> int:
        return attempt.job.number

    async with working(setting, [Parent, Work], handlers, concurrency=2) as client:
        assert await output(client, await begin(client, Parent())) == 21
