"""Chains: one job after another, branches, loops, and going back to an earlier one."""

from __future__ import annotations

from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.working import begin, jobs_of, output, working

from queuert import Attempt, EntryJob, Handlers, Job, SyncAttempt


class Draft(EntryJob[str, "Review"], name="draft"):
    text: str
    round: int = 1


class Review(Job[str, "Draft | Publish | Reject"], name="review"):
    text: str
    round: int


class Publish(Job[str], name="publish"):
    text: str


class Reject(Job[str], name="reject"):
    round: int


class Loop(EntryJob[int, "Loop"], name="loop"):
    left: int
    done: int = 0


JOBS = [Draft, Loop]


def editing(handlers: Handlers[Any]) -> None:
    @handlers.handles(Draft)
    async def draft(attempt: Attempt[Draft]) -> Review:
        return Review(text=attempt.job.text, round=attempt.job.round)

    @handlers.handles(Review)
    async def review(attempt: Attempt[Review]) -> Draft | Publish | Reject:
        job = attempt.job
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"review {job.round} of {job.text}")
            if job.text == "hopeless":
                return Reject(round=job.round)
            return Publish(text=job.text) if job.round == 3 else Draft(text=job.text, round=job.round + 1)

    @handlers.handles(Publish)
    def publish(attempt: SyncAttempt[Publish]) -> str:
        return attempt.job.text.upper()

    @handlers.handles(Reject)
    async def reject(attempt: Attempt[Reject]) -> str:
        return f"rejected in round {attempt.job.round}"


async def test_a_chain_goes_back_to_an_earlier_type_and_on(setting: Setting) -> None:
    handlers = Handlers[Any]()
    editing(handlers)
    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, Draft(text="news"))
        assert await output(client, chain) == "NEWS"
        records = await jobs_of(client, chain)
        assert [record.job_type for record in records] == ["draft", "review"] * 3 + ["publish"]
        assert [record.chain_index for record in records] == list(range(7))
        assert {record.chain_id for record in records} == {chain.id}
        assert await ledger(client) == ["review 1 of news", "review 2 of news", "review 3 of news"]


async def test_a_chain_takes_the_branch_that_was_returned(setting: Setting) -> None:
    handlers = Handlers[Any]()
    editing(handlers)
    async with working(setting, JOBS, handlers, concurrency=5) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Draft(text="hopeless") for _ in range(10)])
        assert [await output(client, chain) for chain in chains] == ["rejected in round 1"] * 10


async def test_a_long_loop_keeps_its_state_in_its_jobs(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Loop)
    async def loop(attempt: Attempt[Loop]) -> Loop | int:
        job = attempt.job
        return Loop(left=job.left - 1, done=job.done + 1) if job.left else job.done

    async with working(setting, JOBS, handlers) as client:
        chain = await begin(client, Loop(left=100))
        assert await output(client, chain) == 100
        assert len(await jobs_of(client, chain)) == 101


async def test_each_job_of_a_chain_has_attempts_of_its_own(setting: Setting) -> None:
    handlers, seen = Handlers[Any](), list[tuple[int, int]]()

    @handlers.handles(Loop, max_attempts=2)
    async def loop(attempt: Attempt[Loop]) -> Loop | int:
        seen.append((attempt.job.left, attempt.number))
        if attempt.number == 1:
            raise RuntimeError("every first time")
        return Loop(left=attempt.job.left - 1) if attempt.job.left else 0

    async with working(setting, JOBS, handlers) as client:
        assert await output(client, await begin(client, Loop(left=2))) == 0
        assert seen == [(2, 1), (2, 2), (1, 1), (1, 2), (0, 1), (0, 2)]


@pytest.mark.channels
async def test_the_steps_of_a_chain_may_run_on_different_workers(setting: Setting) -> None:
    from queuert import Worker

    first, second = Handlers[Any](), Handlers[Any]()

    @first.handles(Draft)
    async def draft(attempt: Attempt[Draft]) -> Review:
        return Review(text=attempt.job.text, round=3)

    @second.handles(Review)
    async def review(attempt: Attempt[Review]) -> Publish:
        return Publish(text=attempt.worker_id)

    @second.handles(Publish)
    async def publish(attempt: Attempt[Publish]) -> str:
        return attempt.job.text

    async with (
        working(setting, JOBS, first, name="first") as client,
        setting.connect(JOBS) as other,
        Worker(other, second, name="second", poll_interval=setting.poll_interval),
    ):
        chain = await begin(client, Draft(text="news"))
        assert (await output(client, chain)).startswith("second-")
        workers = [record.completed_by for record in await jobs_of(client, chain)]
        assert [str(worker).split("-")[0] for worker in workers] == ["first", "second", "second"]
