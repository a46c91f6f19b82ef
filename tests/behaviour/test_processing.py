"""A handler gets the job, returns a value, and the chain has it."""

from __future__ import annotations

import asyncio

import pytest
from tests.behaviour.conftest import Setting, ledger, write

from queuert import Attempt, EntryJob, Handlers, Job, SyncAttempt, Worker

pytestmark = [pytest.mark.drivers, pytest.mark.channels]


class Double(EntryJob[int], name="double"):
    number: int


class Count(EntryJob[int, "Count"], name="count"):
    left: int
    total: int = 0


class Finish(Job[str], name="finish"):
    text: str


class Begin(EntryJob[str, Finish], name="begin"):
    text: str


async def test_a_returned_value_is_the_output_of_the_chain(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Double)
    async def double(attempt: Attempt[Double]) -> int:
        return attempt.job.number * 2

    async with setting.connect([Double]) as client, Worker(client, handlers, poll_interval=setting.poll_interval):
        async with client.transaction() as tx:
            chain = await client.start(tx, Double(number=21))
        assert await client.wait(chain, timeout=45) == 42


async def test_a_returned_job_continues_the_chain(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Count)
    async def count(attempt: Attempt[Count]) -> Count | int:
        job = attempt.job
        return Count(left=job.left - 1, total=job.total + job.left) if job.left else job.total

    async with setting.connect([Count]) as client, Worker(client, handlers, poll_interval=setting.poll_interval):
        async with client.transaction() as tx:
            chain = await client.start(tx, Count(left=10))
        assert await client.wait(chain, timeout=45) == 55
        jobs = await client.list_chain_jobs(chain)
        assert [record.chain_index for record in jobs.items] == list(range(11))
        assert [record.continued_to for record in jobs.items[:-1]] == [record.id for record in jobs.items[1:]]


async def test_what_complete_writes_commits_with_the_completion(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Begin)
    async def begin(attempt: Attempt[Begin]) -> Finish:
        await asyncio.sleep(0)
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"began {attempt.job.text}")
            return Finish(text=attempt.job.text)

    @handlers.handles(Finish)
    def finish(attempt: SyncAttempt[Finish]) -> str:
        return attempt.job.text.upper()

    async with setting.connect([Begin]) as client, Worker(client, handlers, poll_interval=setting.poll_interval):
        async with client.transaction() as tx:
            chain = await client.start(tx, Begin(text="hello"))
        assert await client.wait(chain, timeout=45) == "HELLO"
        assert await ledger(client) == ["began hello"]


async def test_drain_works_until_nothing_is_runnable(setting: Setting) -> None:
    handlers = Handlers()

    @handlers.handles(Double)
    async def double(attempt: Attempt[Double]) -> int:
        return attempt.job.number * 2

    async with setting.connect([Double]) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Double(number=number) for number in range(100)])
        await Worker(client, handlers, concurrency=20, poll_interval=setting.poll_interval).drain()
        outputs = [(await client.get_chain(chain)) for chain in chains]
        assert [chain.output for chain in outputs if chain is not None] == [2 * number for number in range(100)]
        assert await client.stats() == []
