"""delete_chains with cascade: the chains that a chain waited for are deleted too."""

from __future__ import annotations

from queuert_conformance.checks import equal
from queuert_conformance.state.build import cancelled, continued, new_job, next_job, waiting_for
from queuert_conformance.state.delete import gone, needed
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.unblock import behind, sources


@case
async def without_it_blockers_stay(store: Store) -> None:
    """Without cascade only the named chains are deleted."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    equal(gone(await store.delete(job)), [job], "deleted")
    equal(await store.statuses(source), ["pending"], "the blocker")


@driver_case
async def blockers_go_too(store: Store) -> None:
    """With cascade the chains that the deleted ones wait for are deleted too, at every depth."""
    (source,) = await sources(store, 1)
    middle = await store.start("middle", **behind(source))
    last = await store.start(blockers=waiting_for(middle, chain_type="middle"))
    other = await store.start()
    equal(gone(await store.delete(last, cascade=True)), sorted([source, middle, last]), "deleted")
    equal([row.id for row in await store.list_jobs()], [other], "what is left")


@case
async def completed_blockers_go_too(store: Store) -> None:
    """Completed chains that were waited for are deleted too."""
    first, second = await sources(store, 2)
    await store.finish(first)
    job = await store.start(**behind(first, second))
    await store.finish(second)
    equal(gone(await store.delete(job, cascade=True)), sorted([first, second, job]), "deleted")


@case
async def blockers_of_later_jobs_go_too(store: Store) -> None:
    """The blockers of every job of a chain are followed, not only of its first or current one."""
    first, second = await sources(store, 2)
    claimed = await store.running()
    middle = next_job(claimed.job, **behind(first))
    await store.settle(continued(claimed, middle))
    await store.settle(continued(middle.id, next_job(await store.job(middle.id), **behind(second))))
    wanted = sorted([first, second, claimed.job.id])
    equal(gone(await store.delete(claimed.job.id, cascade=True)), wanted, "deleted")
    equal(await store.list_jobs(), [], "stored jobs")


@case
async def it_does_not_go_upward(store: Store) -> None:
    """Cascade goes from a job to its blockers. Jobs that wait for it prevent the deletion."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    equal(needed(await store.delete(source, cascade=True)), {source: [job]}, "waiting")
    equal(await store.statuses(source, job), ["pending", "blocked"], "jobs")


@case
async def a_shared_blocker_refuses(store: Store) -> None:
    """If a job outside needs a blocker at any depth, nothing is deleted. The result names it."""
    (source,) = await sources(store, 1)
    middle = await store.start("middle", **behind(source))
    last = await store.start(blockers=waiting_for(middle, chain_type="middle"))
    outside = await store.start(**behind(source))
    equal(needed(await store.delete(last, cascade=True)), {source: [outside]}, "waiting")
    wanted = ["pending", "blocked", "blocked", "blocked"]
    equal(await store.statuses(source, middle, last, outside), wanted, "jobs")
    await store.settle(cancelled(outside))
    equal(gone(await store.delete(last, cascade=True)), sorted([source, middle, last]), "deleted afterwards")


@case
async def a_diamond_goes_as_a_whole(store: Store) -> None:
    """A blocker that is reached in two ways is deleted once."""
    (source,) = await sources(store, 1)
    left, right = await store.start("middle", **behind(source)), await store.start("middle", **behind(source))
    last = await store.start(blockers=waiting_for(left, right, chain_type="middle"))
    wanted = sorted([source, left, right, last])
    equal(gone(await store.delete(last, cascade=True)), wanted, "deleted")


@case
async def several_roots(store: Store) -> None:
    """Several chains of one call may share blockers, because all jobs that wait are in the set."""
    (source,) = await sources(store, 1)
    one, two = await store.start(**behind(source)), await store.start(**behind(source))
    equal(needed(await store.delete(one, cascade=True)), {source: [two]}, "waiting")
    equal(gone(await store.delete(one, two, source, cascade=True)), sorted([source, one, two]), "deleted")


@case
async def a_long_line(store: Store) -> None:
    """Cascade follows a line of a hundred chains."""
    previous = new_job()
    await store.create(previous)
    ids = [previous.id]
    for _ in range(100):
        previous = new_job(blockers=waiting_for(previous.id))
        await store.create(previous)
        ids.append(previous.id)
    equal(gone(await store.delete(ids[-1], cascade=True)), sorted(ids), "deleted")
