"""trigger and retry: making jobs due now, and giving failed jobs new attempts."""

from __future__ import annotations

from datetime import timedelta

from queuert.records.model import JobRow, When
from queuert_conformance.checks import check, equal, present, same_json
from queuert_conformance.state.build import (
    ERROR,
    FUTURE,
    PAST,
    end_as,
    expired,
    failed,
    later,
    new_id,
    new_job,
    put_back,
    waiting_for,
)
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case

SLACK = timedelta(seconds=20)


def due_now(row: JobRow) -> None:
    check(abs(row.scheduled_at - row.created_at) < SLACK, f"it must be due now, is at {row.scheduled_at}")


@case
async def a_triggered_job_is_due(store: Store) -> None:
    """A pending job becomes due now. The new row is returned, and nothing else changes."""
    job = await store.start(schedule=When(at=FUTURE), deadline=When(at=FUTURE), priority=3)
    before = await store.job(job)
    (row,) = await store.trigger(job)
    equal(row, await store.job(job), "the returned row")
    due_now(present(row, "row"))
    unchanged = (before.status, before.attempt, before.priority, before.deadline, before.created_at)
    found = present(row, "row")
    equal((found.status, found.attempt, found.priority, found.deadline, found.created_at), unchanged, "the rest")
    equal((await store.claim_one()).job.id, job, "claimed job")


@case
async def a_due_job_keeps_its_time(store: Store) -> None:
    """Triggering a job that is already due changes nothing, and returns it."""
    job = await store.start()
    before = await store.job(job)
    await store.elapse(0.002)
    equal(await store.trigger(job), [before], "answer")
    equal(await store.job(job), before, "the job")


@driver_case
async def a_job_put_back_can_be_triggered(store: Store) -> None:
    """A job that waits for its next attempt can be triggered. Its attempts stay."""
    claimed = await store.running()
    await store.settle(put_back(claimed, schedule=later()))
    (row,) = await store.trigger(claimed.job.id)
    equal(row and (row.status, row.attempt), ("pending", 1), "the job")
    same_json(present(row, "row").last_error, ERROR, "last_error")
    equal((await store.claim_one()).job.attempt, 2, "attempt of the next claim")


@case
async def only_pending_jobs_are_triggered(store: Store) -> None:
    """Blocked, running, ended and unknown jobs are not changed: None in their places."""
    source = await store.start("source", schedule=later())
    blocked = await store.start(schedule=later(), blockers=waiting_for(source, chain_type="source"))
    running = (await store.running()).job.id
    ended = [await store.start("end") for _ in ENDINGS]
    await store.settle(*(end_as(status, job) for status, job in zip(ENDINGS, ended, strict=True)))
    scheduled = await store.start(schedule=later())
    jobs = [blocked, running, *ended, scheduled]
    before = await store.jobs(*jobs[:-1])
    answers = await store.trigger(new_id(), *jobs, source)
    wanted = [None] * (len(jobs)) + [scheduled, source]
    equal([row and row.id for row in answers], wanted, "answers")
    equal(await store.jobs(*jobs[:-1]), before, "jobs that are not pending")


@case
async def a_failed_job_is_retried(store: Store) -> None:
    """A failed job becomes pending and due now, with zero attempts and its last error."""
    claimed = await store.running()
    await store.settle(failed(claimed))
    (row,) = await store.retry(claimed.job.id)
    equal(row, await store.job(claimed.job.id), "the returned row")
    found = present(row, "row")
    equal((found.status, found.attempt), ("pending", 0), "the job")
    equal((found.completed_at, found.completed_by), (None, None), "time and worker of the end")
    equal((found.leased_by, found.leased_until, found.token), (None, None, None), "fields of the claim")
    same_json(found.last_error, ERROR, "last_error")
    due_now(found)
    equal((await store.claim_one()).job.attempt, 1, "attempt of the next claim")


@case
async def only_failed_jobs_are_retried(store: Store) -> None:
    """Unknown jobs and jobs that have not failed are not changed: None in their places."""
    open_jobs = [await store.start(), (await store.running("run")).job.id]
    ended = [await store.start("end") for _ in ENDINGS]
    await store.settle(*(end_as(status, job) for status, job in zip(ENDINGS, ended, strict=True)))
    failed_job = ended[ENDINGS.index("failed")]
    others = [job for job in (*open_jobs, *ended) if job != failed_job]
    before = await store.jobs(*others)
    answers = await store.retry(new_id(), failed_job, *others)
    equal([row and row.id for row in answers], [None, failed_job, *[None] * len(others)], "answers")
    equal(await store.jobs(*others), before, "jobs that have not failed")


@case
async def a_blocked_job_that_failed_can_be_retried(store: Store) -> None:
    """A job that failed while blocked is pending after the retry, and has its blockers."""
    source = await store.start("source")
    job = await store.start(blockers=waiting_for(source, chain_type="source"))
    await store.settle(failed(job))
    (row,) = await store.retry(job)
    equal(row and row.status, "pending", "status")
    claimed = await store.claim_one()
    equal([(b.chain_id, b.status) for b in claimed.blockers], [(source, "pending")], "blockers")


@case
async def retried_twice(store: Store) -> None:
    """A job that is pending after a retry has not failed: the next retry returns None."""
    job = await store.start()
    await store.settle(failed(job))
    equal(len([row for row in await store.retry(job) if row]), 1, "the first retry")
    equal(await store.retry(job), [None], "the second retry")


@case
async def named_twice_in_one_call(store: Store) -> None:
    """A job that is named twice in a call is returned twice, with the same row."""
    scheduled, broken = await store.start(schedule=later()), await store.start()
    await store.settle(failed(broken))
    first, second = await store.trigger(scheduled, scheduled)
    equal((first, second), (await store.job(scheduled),) * 2, "triggered")
    first, second = await store.retry(broken, broken)
    equal((first, second), (await store.job(broken),) * 2, "retried")


@case
async def an_expired_job_is_not_retried(store: Store) -> None:
    """Only failed jobs can be retried. An expired job stays expired."""
    job = await store.start(deadline=When(at=PAST))
    await store.settle(expired(job))
    equal(await store.retry(job), [None], "answer")
    equal(await store.statuses(job), ["expired"], "the job")


@driver_case
async def rolled_back_calls_never_were(store: Store) -> None:
    """After the rollback of a trigger and a retry the jobs are unchanged."""
    scheduled, broken = await store.start(schedule=later()), await store.start()
    await store.settle(failed(broken))
    before = await store.jobs(scheduled, broken)
    async with store.rolled_back() as tx:
        await store.trigger(scheduled, tx=tx)
        await store.retry(broken, tx=tx)
    equal(await store.jobs(scheduled, broken), before, "the jobs")


@driver_case
async def hundreds_in_one_call(store: Store) -> None:
    """A call takes hundreds of jobs, and returns them in order."""
    jobs = [new_job(schedule=later()) for _ in range(300)]
    await store.create(*jobs)
    wanted = [job.id for job in jobs][::-1]
    equal([row and row.id for row in await store.trigger(*wanted)], wanted, "triggered")
    await store.settle(*(failed(job_id) for job_id in wanted))
    equal([row and row.id for row in await store.retry(*wanted)], wanted, "retried")


@case
async def empty_calls(store: Store) -> None:
    """Without jobs, the result is empty."""
    equal(await store.trigger(), [], "triggered")
    equal(await store.retry(), [], "retried")
