"""release: giving back jobs that were claimed without the worker's knowledge."""

from __future__ import annotations

from queuert.records.model import ClaimRequest
from queuert_conformance.checks import equal, only, same_json
from queuert_conformance.state.build import ERROR, completed, new_job, put_back, queue, request
from queuert_conformance.state.settle import no_claim
from queuert_conformance.state.store import Store, case, driver_case


def by(worker: str) -> ClaimRequest:
    return request(queue("task"), worker=worker)


@driver_case
async def unknown_jobs_are_put_back(store: Store) -> None:
    """A job that the worker does not name is pending again, as if it had not been claimed."""
    first = await store.running()
    await store.settle(put_back(first))
    due = (await store.job(first.job.id)).scheduled_at
    await store.elapse(0.002)
    claimed = only((await store.claim(by("one"))).jobs, "claimed")
    row = only(await store.release("one", []), "released")
    equal((row.id, row.status, row.attempt, row.scheduled_at), (claimed.job.id, "pending", 1, due), "the job")
    equal(row.last_attempt_at, first.job.last_attempt_at, "last_attempt_at, as after giving back")
    same_json(row.last_error, ERROR, "last_error")
    no_claim(row)
    equal(await store.job(row.id), row, "the stored row")
    again = only((await store.claim(by("two"))).jobs, "claimed again")
    equal((again.job.id, again.job.attempt), (row.id, 2), "the next claim")


@case
async def held_jobs_are_kept(store: Store) -> None:
    """Jobs that the worker names keep their claim. Others are returned in id order."""
    await store.create(*(new_job() for _ in range(5)))
    jobs = [claimed.job for claimed in (await store.claim(by("one"))).jobs]
    released = await store.release("one", [jobs[1].id, jobs[3].id])
    equal([row.id for row in released], sorted(jobs[each].id for each in (0, 2, 4)), "released")
    equal(await store.jobs(jobs[1].id, jobs[3].id), [jobs[1], jobs[3]], "the jobs that are held")
    equal(await store.release("one", [jobs[1].id, jobs[3].id]), [], "released a second time")


@case
async def only_this_workers_jobs(store: Store) -> None:
    """Jobs of other workers, and jobs that are not running, are not changed."""
    claimed = await store.running()
    pending, done = await store.start(), await store.start()
    await store.settle(completed(done))
    equal(await store.release("another", []), [], "released")
    equal(await store.job(claimed.job.id), claimed.job, "another worker's job")
    equal(await store.statuses(pending, done), ["pending", "completed"], "statuses")


@case
async def the_claim_is_over(store: Store) -> None:
    """After that, the token of the claim has no effect."""
    await store.start()
    claimed = only((await store.claim(by("one"))).jobs, "claimed")
    await store.release("one", [])
    equal((await store.settle(completed(claimed))).applied, [False], "settled with the old token")
