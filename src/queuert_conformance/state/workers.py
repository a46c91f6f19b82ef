"""register_worker and the other operations on workers: which there are, and which are dead."""

from __future__ import annotations

from queuert.records.model import Claimed
from queuert_conformance.checks import check, equal, only, sooner_than
from queuert_conformance.state.build import completed, new_job, queue, request
from queuert_conformance.state.store import Store, case, driver_case


async def claim_as(store: Store, worker_id: str, *, lease: float = 60) -> Claimed:
    """A new job, claimed by this worker."""
    await store.create(new_job())
    claim = request(queue("task", lease=lease), limit=1, worker=worker_id)
    return only((await store.claim(claim)).jobs, "claimed jobs")


@driver_case
async def a_new_worker(store: Store) -> None:
    """A worker that registers is known. None of its handlers has begun, and it has no lock."""
    row = await store.register("one")
    equal(row.id, "one", "id")
    equal(row.registered_at, row.seen_at, "the times")
    equal((row.horizon, row.lock_key, row.silent_since), (0, None, None), "horizon and lock")
    equal(await store.workers(), [row], "the workers")


@case
async def registering_again(store: Store) -> None:
    """A worker that registers again was seen now. When it first registered is kept."""
    first = await store.register("one")
    await store.elapse(0.01)
    again = await store.register("one")
    equal(again.registered_at, first.registered_at, "registered_at")
    check(again.seen_at > first.seen_at, "seen_at must be later")
    equal(await store.workers(), [again], "the workers")


@case
async def the_horizon_never_goes_back(store: Store) -> None:
    """Registering moves the horizon ahead, never back."""
    equal((await store.register("one", horizon=5)).horizon, 5, "horizon of a new worker")
    equal((await store.register("one", horizon=3)).horizon, 5, "lowered")
    equal((await store.register("one")).horizon, 5, "not given")
    equal((await store.register("one", horizon=8)).horizon, 8, "moved ahead")


@case
async def a_lock_that_nobody_holds(store: Store) -> None:
    """A lock is stored only if the database sees that it is held."""
    equal((await store.register("one", lock_key=12)).lock_key, None, "lock_key")


@case
async def workers_are_sorted(store: Store) -> None:
    """Workers are listed by id."""
    for name in ("b", "c", "a"):
        await store.register(name)
    equal([row.id for row in await store.workers()], ["a", "b", "c"], "the workers")


@case
async def a_rolled_back_registration(store: Store) -> None:
    """After a rollback, the worker is not known."""
    async with store.rolled_back() as tx:
        await store.register("one", tx=tx)
    equal(await store.workers(), [], "the workers")


@case
async def a_worker_that_ends(store: Store) -> None:
    """A worker without running jobs is forgotten. One that is not known is no error."""
    await store.register("one")
    await store.register("two")
    check(await store.forget("one"), "the row must be gone")
    check(await store.forget("missing"), "the row of an unknown worker is gone, too")
    equal([row.id for row in await store.workers()], ["two"], "the workers")


@driver_case
async def a_worker_that_ends_with_jobs(store: Store) -> None:
    """The row of a worker is kept while jobs are running under its name."""
    await store.register("one")
    claimed = await claim_as(store, "one")
    check(not await store.forget("one"), "the row must be kept")
    equal([row.id for row in await store.workers()], ["one"], "the workers")
    await store.settle(completed(claimed))
    check(await store.forget("one"), "the row must be gone")
    equal(await store.workers(), [], "the workers")


@driver_case
async def old_workers_are_cleaned(store: Store) -> None:
    """Workers that were not seen for long are deleted, unless jobs are running under their name."""
    for name in ("busy", "idle", "new"):
        await store.register(name)
    await claim_as(store, "busy")
    await store.elapse(0.3)
    with sooner_than(0.2):
        await store.register("new")
        equal(await store.clean_workers(0.2), ["idle"], "cleaned")
    equal([row.id for row in await store.workers()], ["busy", "new"], "the workers")


@driver_case
async def nobody_is_dead_without_proof(store: Store) -> None:
    """A worker is dead only if that is known. The end of its leases is no proof."""
    for name in ("here", "there"):
        await store.register(name)
    for name in ("there", "unknown"):
        await claim_as(store, name, lease=0)
    equal(await store.dead_workers("here", "task"), [], "dead workers")
    equal(await store.dead_workers("here"), [], "dead workers, without types")
