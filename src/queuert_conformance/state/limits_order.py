"""claim, with limits that keep the order of a key."""

from __future__ import annotations

from collections.abc import Callable

from queuert.records.model import Claimed, Settlement
from queuert_conformance.checks import equal, only
from queuert_conformance.state.build import (
    completed,
    continued,
    expired,
    failed,
    given_back,
    later,
    next_job,
    put_back,
    rescheduled,
)
from queuert_conformance.state.limits import declare, job, lane, take
from queuert_conformance.state.store import Store, case


async def _ordered(store: Store) -> None:
    await declare(store, 1, ordered=True)


@case
async def the_next_begins_when_the_one_before_is_completed(store: Store) -> None:
    """One after the other, in their order."""
    await _ordered(store)
    first, second = job(), job()
    await store.create(first, second)
    claimed = only((await take(store)).jobs, "claimed jobs")
    equal(claimed.job.id, first.id, "the first job")
    await store.settle(completed(claimed))
    equal(only((await take(store)).jobs, "the next job").job.id, second.id, "the next job")


@case
async def a_job_holds_its_key_until_it_is_completed(store: Store) -> None:
    """Through backoff, rescheduling, giving back and the loss of its worker."""
    await _ordered(store)
    first, urgent = job(), job(priority=1)
    await store.create(first)
    claimed = only((await take(store)).jobs, "claimed jobs")
    await store.create(urgent)
    ends: list[Callable[[Claimed], Settlement]] = [
        lambda held: put_back(held, schedule=later(0.05)),
        lambda held: rescheduled(held, later(0.05)),
        given_back,
    ]
    for end in ends:
        await store.settle(end(claimed))
        waiting = (await take(store)).jobs
        if not waiting:
            await store.elapse(0.1)
            waiting = (await take(store, lease=0.001)).jobs
        claimed = only(waiting, "jobs that begin again")
        equal(claimed.job.id, first.id, "the job that holds the key")
    await store.settle(completed(claimed))
    equal(only((await take(store)).jobs, "the next job").job.id, urgent.id, "the next job")


@case
async def a_failed_job_stops_its_key(store: Store) -> None:
    """Until it is retried and completed, or deleted."""
    await _ordered(store)
    first, second, third = job(), job(), job()
    await store.create(first, second, third)
    await store.settle(failed(only((await take(store)).jobs, "claimed jobs")))
    equal((await take(store)).jobs, [], "jobs behind the failed one")
    row = next(each for each in await store.limits() if each.key == "a")
    equal((row.holder, row.waiting), (first.id, 2), "what the list tells")
    await store.retry(first.id)
    again = only((await take(store)).jobs, "jobs after the retry")
    equal(again.job.id, first.id, "the failed job")
    await store.settle(completed(again))
    await store.settle(failed(only((await take(store)).jobs, "the second job")))
    await store.delete(second.id)
    equal(only((await take(store)).jobs, "jobs after the deletion").job.id, third.id, "the third job")


@case
async def a_key_goes_on_after_other_ends(store: Store) -> None:
    """Cancelled, expired and deleted jobs do not hold it."""
    await _ordered(store)
    jobs = [job() for _ in range(4)]
    await store.create(*jobs)
    await store.cancel(only((await take(store)).jobs, "the first job").job.chain_id)
    await store.settle(expired(only((await take(store)).jobs, "the second job")))
    claimed = only((await take(store)).jobs, "the third job")
    await store.settle(put_back(claimed, schedule=later()))
    equal((await take(store)).jobs, [], "jobs beside one that waits for its next attempt")
    await store.cancel(claimed.job.chain_id)
    equal(only((await take(store)).jobs, "the last job").job.id, jobs[3].id, "the last job")


@case
async def a_job_that_never_began_holds_nothing(store: Store) -> None:
    """One that is scheduled or cancelled before its turn is not in the way."""
    await _ordered(store)
    first, second = job(schedule=later(), priority=1), job()
    await store.create(first, second)
    equal(only((await take(store)).jobs, "claimed jobs").job.id, second.id, "the job that is due")


@case
async def a_continuation_keeps_the_key(store: Store) -> None:
    """The chain goes on before others, if its next job has the same key."""
    await _ordered(store)
    first, second = job(), job(priority=1)
    await store.create(first)
    claimed = only((await take(store)).jobs, "claimed jobs")
    await store.create(second)
    following = next_job(claimed.job, lane=lane())
    await store.settle(continued(claimed, following))
    then = only((await take(store)).jobs, "the continuation")
    equal(then.job.id, following.id, "the continuation")
    await store.settle(continued(then, next_job(then.job, "other")))
    equal(only((await take(store)).jobs, "the next job").job.id, second.id, "the next job")
