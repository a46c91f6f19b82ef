"""repair: a job that ended badly is retried with another input."""

from __future__ import annotations

from queuert.base.statuses import REPAIRABLE
from queuert.records.model import When
from queuert_conformance.checks import equal, present, same_json
from queuert_conformance.state.build import ERROR, FUTURE, INPUT, PAST, completed, end_as, failed, new_id, waiting_for
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.trigger_retry import due_now

NEW = b'{"order":8,"note":"caf\xc3\xa9"}'


@driver_case
async def a_failed_job_gets_another_input(store: Store) -> None:
    """A failed job is pending and due now, with the new input, no attempts and its last error."""
    claimed = await store.running(schedule=When(at=PAST), priority=3)
    await store.settle(failed(claimed))
    row = await store.repair(claimed.job.id, NEW)
    equal(row, await store.job(claimed.job.id), "the returned row")
    found = present(row, "row")
    equal((found.status, found.attempt, found.priority), ("pending", 0, 3), "the job")
    equal((found.completed_at, found.completed_by), (None, None), "time and worker of the end")
    same_json(found.input, NEW, "input")
    same_json(found.last_error, ERROR, "last_error")
    due_now(found)
    again = await store.claim_one()
    equal((again.job.id, again.job.attempt), (claimed.job.id, 1), "the next claim")
    same_json(again.job.input, NEW, "input of the claim")


@case
async def only_jobs_that_ended_badly_are_repaired(store: Store) -> None:
    """Failed, cancelled and expired jobs are repaired. Others are not changed."""
    ended = [await store.start("end") for _ in ENDINGS]
    await store.settle(*(end_as(status, job) for status, job in zip(ENDINGS, ended, strict=True)))
    for status, job in zip(ENDINGS, ended, strict=True):
        before = await store.job(job)
        row = await store.repair(job, NEW)
        equal(row is not None, status in REPAIRABLE, f"whether a job that is {status} was repaired")
        if row is None:
            equal(await store.job(job), before, "the job")
    source = await store.start("source")
    blocked = await store.start(blockers=waiting_for(source, chain_type="source"))
    for job in (await store.start("other"), (await store.running("run")).job.id, blocked):
        equal(await store.repair(job, NEW), None, "a job that has not ended")
        same_json((await store.job(job)).input, INPUT, "its input")
    equal(await store.repair(new_id(), NEW), None, "an unknown job")
    equal(await store.repair("no-id", NEW), None, "no id at all")


@driver_case
async def deadlines_of_repaired_jobs(store: Store) -> None:
    """A new deadline replaces the old one. Without one, a deadline that has passed is removed."""
    passed = await store.start(deadline=When(at=PAST))
    ahead = await store.start(deadline=When(at=FUTURE))
    moved = await store.start(deadline=When(at=PAST))
    counted = await store.start(deadline=When(at=PAST))
    await store.settle(*(end_as("expired", job) for job in (passed, ahead, moved, counted)))
    equal(present(await store.repair(passed, NEW), "row").deadline, None, "one that has passed")
    equal(present(await store.repair(ahead, NEW), "row").deadline, FUTURE, "one that has not")
    equal(present(await store.repair(moved, NEW, When(at=FUTURE)), "row").deadline, FUTURE, "a new one")
    found = present(await store.repair(counted, NEW, When(after=60.0)), "row")
    seconds = (present(found.deadline, "deadline") - found.scheduled_at).total_seconds()
    equal(round(seconds), 60, "seconds from now")


@case
async def a_repaired_chain_frees_its_dependents(store: Store) -> None:
    """Jobs that wait for a chain that was repaired are freed when it completes."""
    source = await store.start("source")
    waiting = await store.start(blockers=waiting_for(source, chain_type="source"))
    await store.settle(failed(source))
    equal(await store.statuses(waiting), ["blocked"], "before")
    await store.repair(source, NEW)
    await store.settle(completed(source))
    equal(await store.statuses(waiting), ["pending"], "after")


@case
async def a_rolled_back_repair_never_was(store: Store) -> None:
    """After a rollback, the job has its end and its input again."""
    job = await store.start()
    await store.settle(failed(job))
    before = await store.job(job)
    async with store.rolled_back() as tx:
        await store.repair(job, NEW, tx=tx)
    equal(await store.job(job), before, "the job")
