"""prune: a chain that a job still needs stays, and never keeps others."""

from __future__ import annotations

from queuert.base.statuses import Status
from queuert_conformance.checks import equal
from queuert_conformance.state.build import TASK, completed, end_as, failed, waiting_for
from queuert_conformance.state.prune import ended, keep, short, stored
from queuert_conformance.state.store import Store, case, driver_case


@driver_case
async def a_stuck_dependent(store: Store) -> None:
    """A chain that a job waits for stays with its edges. All other chains are deleted."""
    await store.keep(short(), keep("stuck"))
    needed, others = await ended(store), [await ended(store) for _ in range(3)]
    open_one = await store.start("other")
    stuck = await store.start("stuck", blockers=(*waiting_for(needed), *waiting_for(open_one, chain_type="other")))
    pruned = await store.prune(lap_every=0.0)
    equal(pruned.deleted, 3, "deleted")
    equal(await stored(store, needed, stuck, *others), [True, True, False, False, False], "stored")
    equal((await store.retention()).noted, 1, "noted")
    equal(len((await store.blockers(stuck))[0]), 2, "its blockers")


@case
async def a_job_that_may_be_retried(store: Store) -> None:
    """A failed job needs its blockers. One that has ended for good does not."""
    await store.keep(short(), keep("dependent"))
    blockers = [await ended(store) for _ in range(4)]
    ends: tuple[Status, ...] = ("failed", "completed", "cancelled", "expired")
    for blocker, status in zip(blockers, ends, strict=True):
        await store.start("dependent", blockers=waiting_for(blocker))
        claim = await store.claim_one("dependent")
        await store.settle(end_as(status, claim))
    await store.prune(lap_every=0.0)
    equal(await stored(store, *blockers), [True, False, False, False], "blockers")


@case
async def a_job_that_has_to_be_freed(store: Store) -> None:
    """A completed chain stays as long as `continue_unblocking` has something to do for it."""
    await store.keep(short(), keep("dependent"))
    store.operations.unblocked_at_once = 1
    claim = await store.running()
    for _ in range(3):
        await store.start("dependent", blockers=waiting_for(claim.job.id))
    await store.settle(completed(claim))
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted")
    await store.continue_unblocking(10)
    for _ in range(3):
        await store.settle(completed(await store.claim_one("dependent")))
    equal((await store.prune(lap_every=0.0, restart=True)).deleted, 1, "deleted when all have ended")


@case
async def both_are_due(store: Store) -> None:
    """A failed job does not need what is deleted together with it, unless something keeps it."""
    await store.keep(short(), short("dependent"), keep("stuck"))
    blockers = [await ended(store) for _ in range(2)]
    dependents = [await store.start("dependent", blockers=waiting_for(blocker)) for blocker in blockers]
    for _ in dependents:
        await store.settle(failed(await store.claim_one("dependent")))
    stuck = await store.start("stuck", blockers=waiting_for(dependents[1], chain_type="dependent"))
    equal((await store.prune(lap_every=0.0)).deleted, 2, "deleted")
    equal(await stored(store, *blockers, *dependents, stuck), [False, True, False, True, True], "stored")


@case
async def needed_until_later(store: Store) -> None:
    """A chain that was needed is deleted by a lap as soon as it is not."""
    await store.keep(short(), keep("dependent"))
    blocker = await ended(store)
    dependent = await store.start("dependent", blockers=waiting_for(blocker))
    equal((await store.prune(lap_every=0.0)).deleted, 0, "deleted while it is needed")
    await store.settle(completed(await store.claim_one("dependent")))
    equal((await store.prune(lap_every=0.0, restart=True)).deleted, 1, "deleted then")
    equal(((await store.retention()).noted, await store.blockers(dependent)), (0, [[]]), "notes, and edges")
    equal(await stored(store, dependent), [True], TASK)
