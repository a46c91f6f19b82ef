"""settle: putting a job back, after a failed attempt or untouched."""

from __future__ import annotations

from datetime import timedelta

from queuert.errors import InvalidArgument
from queuert.records.model import Settled, Settlement, When
from queuert_conformance.checks import check, equal, present, raises, same_json
from queuert_conformance.state.build import (
    ERROR,
    FUTURE,
    PAST,
    completed,
    failed,
    given_back,
    later,
    new_job,
    put_back,
    rescheduled,
)
from queuert_conformance.state.settle import SLACK, no_claim
from queuert_conformance.state.store import Store, case, driver_case


@case
async def putting_back(store: Store) -> None:
    """A job put back is pending at its new time, with error and attempts, without a claim."""
    claimed = await store.running()
    settled = await store.settle(put_back(claimed, schedule=later()))
    equal(settled, Settled(applied=[True], created=[None], unblocked=[]), "answer")
    row = await store.job(claimed.job.id)
    equal((row.status, row.attempt, row.completed_at), ("pending", 1, None), "the job")
    delay = row.scheduled_at - present(row.last_attempt_at, "last_attempt_at")
    check(abs(delay - timedelta(hours=1)) < SLACK, f"it must be due in an hour, is in {delay}")
    same_json(row.last_error, ERROR, "last_error")
    no_claim(row)
    equal((await store.claim()).jobs, [], "claimed before its time")


@driver_case
async def putting_back_to_a_moment(store: Store) -> None:
    """A job put back has exactly the given moment. Without one, or with a past one, it is now."""
    claimed = await store.running()
    await store.settle(put_back(claimed, schedule=When(at=FUTURE)))
    equal((await store.job(claimed.job.id)).scheduled_at, FUTURE, "a future moment")
    await store.trigger(claimed.job.id)
    for schedule in (When(at=PAST), When()):
        again = await store.claim_one()
        await store.elapse(0.002)
        await store.settle(put_back(again, schedule=schedule))
        row = await store.job(claimed.job.id)
        check(row.scheduled_at > present(again.job.last_attempt_at, "start"), "it must be due when it is put back")
        check(row.scheduled_at - row.created_at < SLACK, "it must be due now")
    equal((await store.claim_one()).job.attempt, 4, "attempt of the next claim")


@case
async def putting_back_without_an_error(store: Store) -> None:
    """Without an error, the error of an earlier attempt stays."""
    claimed = await store.running()
    await store.settle(put_back(claimed))
    await store.settle(put_back(await store.claim_one(), error=None))
    same_json((await store.job(claimed.job.id)).last_error, ERROR, "last_error")


@case
async def the_latest_error_stays(store: Store) -> None:
    """A later error replaces an earlier one."""
    claimed = await store.running()
    await store.settle(put_back(claimed))
    await store.settle(failed(await store.claim_one(), b'{"code":"LATER"}'))
    same_json((await store.job(claimed.job.id)).last_error, b'{"code":"LATER"}', "last_error")


@driver_case
async def giving_back(store: Store) -> None:
    """A job given back has one attempt less, the same schedule and error, and no claim."""
    first = await store.running()
    await store.settle(put_back(first))
    due = (await store.job(first.job.id)).scheduled_at
    await store.elapse(0.002)
    settled = await store.settle(given_back(await store.claim_one()))
    equal(settled.applied, [True], "applied")
    row = await store.job(first.job.id)
    equal((row.status, row.attempt, row.scheduled_at), ("pending", 1, due), "the job")
    equal(row.last_attempt_at, first.job.last_attempt_at, "last_attempt_at")
    same_json(row.last_error, ERROR, "last_error")
    no_claim(row)
    equal((await store.claim_one()).job.attempt, 2, "attempt of the next claim")


@driver_case
async def putting_back_a_run_that_is_no_attempt(store: Store) -> None:
    """An uncounted run hands its attempt number back, and has the new schedule and its own time."""
    claimed = await store.running()
    settled = await store.settle(rescheduled(claimed, When(at=FUTURE)))
    equal(settled.applied, [True], "applied")
    row = await store.job(claimed.job.id)
    equal((row.status, row.attempt, row.scheduled_at, row.last_error), ("pending", 0, FUTURE, None), "the job")
    equal(row.last_attempt_at, claimed.job.last_attempt_at, "last_attempt_at")
    no_claim(row)
    await store.trigger(claimed.job.id)
    equal((await store.claim_one()).job.attempt, 1, "attempt of the next claim")


@case
async def an_uncounted_run_keeps_the_error(store: Store) -> None:
    """The error and the number of an earlier attempt stay after an uncounted run."""
    claimed = await store.running()
    await store.settle(put_back(claimed))
    await store.settle(rescheduled(await store.claim_one()))
    row = await store.job(claimed.job.id)
    equal(row.attempt, 1, "attempt")
    same_json(row.last_error, ERROR, "last_error")


@case
async def giving_back_leaves_no_trace_of_a_run(store: Store) -> None:
    """A job given back has the last_attempt_at from before the claim, or none."""
    first = await store.running()
    await store.settle(given_back(first))
    equal((await store.job(first.job.id)).last_attempt_at, None, "before any run")
    began = await store.claim_one()
    check(not began.ran_before, "a job that was given back has not run before")
    await store.settle(put_back(began))
    await store.elapse(0.01)
    again = await store.claim_one()
    check(again.ran_before, "a job that failed has run before")
    await store.settle(given_back(again))
    equal((await store.job(first.job.id)).last_attempt_at, began.job.last_attempt_at, "after a run")
    check((await store.claim_one()).ran_before, "a job that has run has run, also after it was given back")


@case
async def giving_back_the_first_claim(store: Store) -> None:
    """A job given back after its first claim is as it was before: it was never attempted."""
    chain_id = await store.start()
    before = await store.job(chain_id)
    await store.settle(given_back(await store.claim_one()))
    equal(await store.job(chain_id), before, "the job")


@case
async def putting_back_needs_a_token(store: Store) -> None:
    """Putting a job back without a token raises InvalidArgument, and nothing is settled."""
    await store.create(new_job(), new_job())
    one, two = (await store.claim()).jobs
    with raises(InvalidArgument, "putting back without a token"):
        await store.settle(completed(one), Settlement(job_id=two.job.id, token=None, status="pending"))
    equal(await store.jobs(one.job.id, two.job.id), [one.job, two.job], "both jobs")
