"""Two connections at once: no wake-up is lost if a blocker completes while a job starts to wait for
it.
"""

from __future__ import annotations

from queuert_conformance.checks import equal
from queuert_conformance.state.build import continued, new_job, next_job
from queuert_conformance.state.concurrency import expect_waiting
from queuert_conformance.state.store import Store, case, settled_soon
from queuert_conformance.state.unblock import SOURCE, behind, freed, sources


@case
async def started_while_its_blocker_completes(store: Store) -> None:
    """A job is unblocked even if its start is not committed when its blocker completes."""
    other = await store.second()
    (source,) = await sources(store, 1)
    async with store.transaction() as tx:
        job = await store.start(tx=tx, **behind(source))
        completing = store.spawn(other.finish(source))
        await expect_waiting(completing, "the completion of a blocker")
    equal(freed(await completing), [job], "unblocked by the completion")
    row = await store.job(job)
    equal((row.status, row.blockers_left), ("pending", 0), "the job")


@case
async def a_blocker_completes_while_it_is_named(store: Store) -> None:
    """A job started while its blocker's completion is uncommitted does not stay blocked."""
    other = await store.second()
    (source,) = await sources(store, 1)
    job = new_job(**behind(source))
    async with store.transaction() as tx:
        await store.finish(source, tx=tx)
        starting = store.spawn(other.create(job))
        await expect_waiting(starting, "the start")
    (made,) = await starting
    equal((made.status, made.ready), ("pending", True), "answer")
    row = await store.job(job.id)
    equal((row.status, row.blockers_left), ("pending", 0), "the job")


@case
async def a_blocker_that_does_not_complete_after_all(store: Store) -> None:
    """If the completion rolls back, a job started meanwhile is blocked, and unblocked later."""
    other = await store.second()
    (source,) = await sources(store, 1)
    job = new_job(**behind(source))
    async with store.rolled_back() as tx:
        await store.finish(source, tx=tx)
        starting = store.spawn(other.create(job))
        await settled_soon(starting)
    await starting
    equal(await store.statuses(source, job.id), ["pending", "blocked"], "statuses")
    equal(freed(await store.finish(source)), [job.id], "freed later")


@case
async def a_blocker_hands_over_while_it_is_named(store: Store) -> None:
    """A job started while its blocking chain continues waits for the end of that chain."""
    other = await store.second()
    claimed = await store.running(SOURCE)
    following = next_job(claimed.job)
    async with store.transaction() as tx:
        await store.settle(continued(claimed, following), tx=tx)
        starting = store.spawn(other.start("late", **behind(claimed.job.id)))
        await settled_soon(starting)
    job = await starting
    equal(await store.statuses(job), ["blocked"], "the job")
    equal(freed(await store.finish(following.id)), [job], "unblocked at the end")


@case
async def two_blockers_complete_at_once(store: Store) -> None:
    """Two blockers of one job that complete at once unblock it. Exactly one of them reports it."""
    other = await store.second()
    first, second = await sources(store, 2)
    job = await store.start(**behind(first, second))
    async with store.transaction() as tx:
        one = await store.finish(first, tx=tx)
        completing = store.spawn(other.finish(second))
        await expect_waiting(completing, "the second completion")
    two = await completing
    equal((freed(one), freed(two)), ([], [job]), "unblocked by the first and by the second")
    row = await store.job(job)
    equal((row.status, row.blockers_left), ("pending", 0), "the job")


@case
async def deletion_against_a_new_dependent(store: Store) -> None:
    """A chain that an uncommitted start names as a blocker is not deleted."""
    other = await store.second()
    (source,) = await sources(store, 1)
    async with store.transaction() as tx:
        job = await store.start(tx=tx, **behind(source))
        deleting = store.spawn(other.delete(source))
        await expect_waiting(deleting, "the deletion")
    deleted = await deleting
    equal({chain: list(jobs) for chain, jobs in deleted.waiting.items()}, {source: [job]}, "waiting")
    equal(await store.statuses(source, job), ["pending", "blocked"], "jobs")
