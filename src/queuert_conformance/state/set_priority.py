"""set_priority: another place in line for jobs that wait."""

from __future__ import annotations

from msgspec.structs import replace

from queuert_conformance.checks import equal
from queuert_conformance.state.build import completed, end_as, given_back, later, new_id, queue, request, waiting_for
from queuert_conformance.state.claim import ids
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case


@driver_case
async def another_priority(store: Store) -> None:
    """A ready job gets another place in line, and nothing else changes."""
    first, second = await store.start(), await store.start()
    before = await store.job(second)
    (row,) = await store.set_priority(second, priority=7)
    equal(row, replace(before, priority=7), "the returned row")
    equal(row, await store.job(second), "the stored row")
    equal(ids(await store.claim()), [second, first], "claimed jobs")


@case
async def of_a_job_that_is_not_due(store: Store) -> None:
    """A job that is not due yet is claimed with its new priority when it is due."""
    soon = await store.start(schedule=later())
    other = await store.start(priority=50)
    await store.set_priority(soon, priority=7)
    await store.trigger(soon)
    equal(ids(await store.claim()), [soon, other], "claimed jobs")


@case
async def of_a_blocked_job(store: Store) -> None:
    """A blocked job is claimed with its new priority when its blockers are completed."""
    source = await store.start("source")
    blocked = await store.start(blockers=waiting_for(source, chain_type="source"))
    other = await store.start(priority=50)
    await store.set_priority(blocked, priority=-7)
    await store.settle(completed(source))
    equal(ids(await store.claim()), [blocked, other], "claimed jobs")


@case
async def the_same_priority(store: Store) -> None:
    """A job that has this priority already is returned as it is, and can be claimed once."""
    job = await store.start(priority=7)
    before = await store.job(job)
    equal(await store.set_priority(job, job, priority=7), [before, before], "the answer")
    equal(ids(await store.claim()), [job], "claimed jobs")
    equal(ids(await store.claim()), [], "claimed again")


@case
async def only_of_jobs_that_wait(store: Store) -> None:
    """Running, ended and unknown jobs are not changed: None in their places."""
    running = (await store.running("run")).job.id
    ended = [await store.start("end") for _ in ENDINGS]
    await store.settle(*(end_as(status, job) for status, job in zip(ENDINGS, ended, strict=True)))
    before = await store.jobs(running, *ended)
    job = await store.start()
    answers = await store.set_priority(new_id(), running, *ended, job, priority=7)
    equal([row and row.id for row in answers], [None] * (len(ended) + 2) + [job], "answers")
    equal(await store.jobs(running, *ended), before, "the others")


@case
async def a_job_that_is_put_back(store: Store) -> None:
    """A job that gets a new priority after its attempt is claimed again by it."""
    first = await store.running()
    other = await store.start(priority=50)
    await store.settle(given_back(first))
    await store.set_priority(first.job.id, priority=7)
    equal(ids(await store.claim(request(queue("task"), limit=1))), [first.job.id], "claimed first")
    equal(ids(await store.claim(request(queue("task"), limit=1))), [other], "claimed next")


@case
async def rolled_back_priorities(store: Store) -> None:
    """After a rollback, the jobs are in line as before."""
    first, second = await store.start(), await store.start()
    async with store.rolled_back() as tx:
        await store.set_priority(second, priority=7, tx=tx)
    equal(ids(await store.claim()), [first, second], "claimed jobs")


@case
async def without_jobs(store: Store) -> None:
    """Without jobs, the result is empty."""
    equal(await store.set_priority(priority=7), [], "the answer")
