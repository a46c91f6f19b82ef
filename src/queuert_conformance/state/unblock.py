"""Unblocking: a chain that completes unblocks the jobs that waited for it, once, and no others."""

from __future__ import annotations

from typing import Any

from queuert.records.model import Settled, Unblocked, When
from queuert_conformance.checks import equal
from queuert_conformance.state.blockers import UNSUCCESSFUL
from queuert_conformance.state.build import FUTURE, PAST, cancelled, completed, end_as, new_ids, new_job, waiting_for
from queuert_conformance.state.store import Store, case, driver_case

SOURCE = "source"


def behind(*chain_ids: str) -> dict[str, Any]:
    """The blockers of a job that waits for these chains."""
    return {"blockers": waiting_for(*chain_ids, chain_type=SOURCE)}


def freed(settled: Settled) -> list[str]:
    """The ids of the jobs that a settlement unblocked, sorted."""
    return sorted(each.job_id for each in settled.unblocked)


async def sources(store: Store, number: int) -> list[str]:
    """New chains to wait for."""
    ids = new_ids(number)
    await store.create(*(new_job(SOURCE, id=each) for each in ids))
    return ids


@case
async def completion_frees_the_dependent(store: Store) -> None:
    """When its blocker completes, a blocked job becomes pending and due now. Its attempts stay."""
    (source,) = await sources(store, 1)
    job = await store.start(schedule=When(at=PAST), **behind(source))
    claimed = await store.claim_one(SOURCE)
    await store.elapse(0.002)
    settled = await store.settle(completed(claimed))
    equal(settled.unblocked, [Unblocked(job, "task", ready=True)], "unblocked")
    row = await store.job(job)
    equal((row.status, row.blockers_left, row.attempt), ("pending", 0, 0), "the job")
    equal(row.scheduled_at, (await store.job(source)).completed_at, "scheduled_at")
    equal([c.job.id for c in (await store.claim()).jobs], [job], "claimed jobs")


@driver_case
async def a_freed_job_does_not_overtake(store: Store) -> None:
    """A job that is unblocked is claimed after the jobs of its priority that were ready before."""
    (source,) = await sources(store, 1)
    job, other = new_ids(2)
    await store.start(id=job, schedule=When(at=PAST), **behind(source))
    await store.elapse(0.002)
    await store.start(id=other)
    await store.elapse(0.002)
    await store.settle(completed(await store.claim_one(SOURCE)))
    equal([claimed.job.id for claimed in (await store.claim()).jobs], [other, job], "claimed jobs")


@case
async def a_job_that_still_waits_keeps_its_time(store: Store) -> None:
    """While a job waits for another blocker, its scheduled time stays."""
    first, second = await sources(store, 2)
    job = await store.start(**behind(first, second))
    before = await store.job(job)
    await store.elapse(0.002)
    await store.finish(first)
    equal((await store.job(job)).scheduled_at, before.scheduled_at, "scheduled_at")


@case
async def a_freed_job_may_have_to_wait_for_its_time(store: Store) -> None:
    """A job that is unblocked before its scheduled time is pending, but not ready."""
    (source,) = await sources(store, 1)
    job = await store.start(schedule=When(at=FUTURE), **behind(source))
    settled = await store.finish(source)
    equal(settled.unblocked, [Unblocked(job, "task", ready=False)], "unblocked")
    equal((await store.job(job)).scheduled_at, FUTURE, "scheduled_at")
    equal((await store.claim()).jobs, [], "claimed before its time")


@case
async def completion_without_a_worker_frees(store: Store) -> None:
    """A chain that is completed without a token unblocks its dependents too."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    equal(freed(await store.finish(source)), [job], "unblocked")
    equal(await store.statuses(job), ["pending"], "the job")


@case
async def the_last_of_several_frees(store: Store) -> None:
    """A job with several blockers is unblocked by the last of them, and reported once."""
    ids = await sources(store, 3)
    job = await store.start(**behind(*ids))
    for position, source in enumerate(ids):
        last = position == 2
        settled = await store.finish(source)
        equal(freed(settled), [job] if last else [], f"unblocked by blocker {position}")
        row = await store.job(job)
        equal((row.blockers_left, row.status), (2 - position, "pending" if last else "blocked"), "the job")


@case
async def several_blockers_in_one_call(store: Store) -> None:
    """Blockers that complete in one call each count, and unblock their dependent once."""
    ids = await sources(store, 5)
    job = await store.start(**behind(*ids))
    partly = await store.start("partly", **behind(*ids[:2], await store.start(SOURCE)))
    settled = await store.settle(*(completed(source) for source in ids))
    equal(freed(settled), [job], "unblocked")
    equal((await store.job(job)).blockers_left, 0, "blockers_left")
    row = await store.job(partly)
    equal((row.status, row.blockers_left), ("blocked", 1), "a job that waits for one more")


@case
async def many_dependents(store: Store) -> None:
    """One chain unblocks all jobs that wait for it, of any type."""
    (source,) = await sources(store, 1)
    jobs = [new_job(f"type-{number % 3}", **behind(source)) for number in range(60)]
    await store.create(*jobs)
    settled = await store.finish(source)
    equal(freed(settled), sorted(job.id for job in jobs), "unblocked")
    types = {job.id: job.type_name for job in jobs}
    equal([types[each.job_id] for each in settled.unblocked], [e.type_name for e in settled.unblocked], "types")
    equal(set(await store.statuses(*types)), {"pending"}, "statuses")


@case
async def unsuccessful_ends_do_not_free(store: Store) -> None:
    """A blocker that fails, expires or is cancelled leaves its dependents blocked."""
    for status in UNSUCCESSFUL:
        (source,) = await sources(store, 1)
        job = await store.start(**behind(source))
        settled = await store.settle(end_as(status, source))
        equal(settled.unblocked, [], f"unblocked by a {status} chain")
        row = await store.job(job)
        equal((row.status, row.blockers_left), ("blocked", 1), f"a job behind a {status} chain")


@case
async def a_retried_blocker_frees_in_the_end(store: Store) -> None:
    """A failed blocker that is retried and completes unblocks all its dependents."""
    (source,) = await sources(store, 1)
    before = await store.start(**behind(source))
    await store.settle(end_as("failed", source))
    after = await store.start(**behind(source))
    await store.retry(source)
    settled = await store.settle(completed(await store.claim_one(SOURCE)))
    equal(freed(settled), sorted([before, after]), "unblocked")


@case
async def ended_dependents_are_left_alone(store: Store) -> None:
    """A dependent that is no longer blocked is neither changed nor reported."""
    (source,) = await sources(store, 1)
    gone, done = await store.start(**behind(source)), await store.start(**behind(source))
    await store.settle(cancelled(gone), completed(done, b"1"))
    settled = await store.finish(source)
    equal(settled.unblocked, [], "unblocked")
    equal(await store.statuses(gone, done), ["cancelled", "completed"], "statuses")


@case
async def a_retried_dependent_is_left_alone(store: Store) -> None:
    """A retried dependent that runs is not changed when its blocker completes."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    await store.settle(end_as("failed", job))
    await store.retry(job)
    claimed = await store.claim_one()
    equal([(b.chain_id, b.status, b.output) for b in claimed.blockers], [(source, "pending", None)], "blockers")
    equal((await store.finish(source)).unblocked, [], "unblocked")
    row = await store.job(job)
    equal((row.status, row.token), ("running", claimed.job.token), "the running job")


@case
async def a_lost_settlement_frees_nothing(store: Store) -> None:
    """A settlement without a valid claim unblocks no job."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    claimed = await store.claim_one(SOURCE, lease=0)
    await store.reap(SOURCE)
    settled = await store.settle(completed(claimed))
    equal((settled.applied, settled.unblocked), ([False], []), "the late settlement")
    equal(await store.statuses(job), ["blocked"], "the job")


@case
async def a_repeated_completion_frees_once(store: Store) -> None:
    """A chain that is completed twice, in one call or in two, counts once for each dependent."""
    ids = await sources(store, 2)
    job = await store.start(**behind(*ids))
    await store.settle(completed(ids[0]), completed(ids[0]))
    await store.settle(completed(ids[0]))
    row = await store.job(job)
    equal((row.status, row.blockers_left), ("blocked", 1), "the job")


@case
async def a_rolled_back_completion_frees_nobody(store: Store) -> None:
    """A rolled-back completion leaves dependents blocked. A later one unblocks them."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    async with store.rolled_back() as tx:
        equal(freed(await store.finish(source, tx=tx)), [job], "unblocked inside the transaction")
    row = await store.job(job)
    equal((row.status, row.blockers_left), ("blocked", 1), "after the rollback")
    equal(freed(await store.finish(source)), [job], "unblocked by the second try")


@case
async def a_savepoint_takes_the_freeing_back(store: Store) -> None:
    """A rollback to a savepoint blocks the jobs again that a completion in it had unblocked."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    async with store.transaction() as tx:
        async with store.undone(tx):
            await store.finish(source, tx=tx)
        equal(await store.statuses(job, tx=tx), ["blocked"], "inside the transaction")
    equal(await store.statuses(source, job), ["pending", "blocked"], "after the commit")
