"""next_available_in: when a worker should claim again."""

from __future__ import annotations

from queuert.records.model import When
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import FUTURE, PAST, completed, later, new_job, put_back, waiting_for
from queuert_conformance.state.store import Store, case, driver_case


async def about(store: Store, seconds: float, *types: str) -> None:
    """Check that the next job of these types is due in this many seconds."""
    wait = present(await store.next_available_in(*types), "seconds until a job is due")
    check(seconds - 20 <= wait <= seconds + 0.5, f"a job must be due in {seconds:g} s, not in {wait:g} s")


@case
async def none_without_jobs(store: Store) -> None:
    """None if there is no pending job of these types."""
    equal(await store.next_available_in("task", "other"), None, "on empty storage")
    await store.start("another")
    equal(await store.next_available_in("task", "other"), None, "with jobs of other types")


@case
async def zero_if_one_is_due(store: Store) -> None:
    """0 if a job is due, however long it has been due."""
    await store.start(schedule=later())
    await store.start(schedule=When(at=PAST))
    await store.elapse(0.002)
    equal(await store.next_available_in("task"), 0, "seconds")


@driver_case
async def the_earliest_decides(store: Store) -> None:
    """The seconds until the earliest job of these types is due, whatever its priority."""
    await store.create(
        new_job(schedule=later(3000), priority=1),
        new_job(schedule=later(1000), priority=900),
        new_job("other", schedule=later(2000)),
        new_job("another", schedule=later(500)),
    )
    await about(store, 1000, "task")
    await about(store, 2000, "other")
    await about(store, 1000, "task", "other", "missing")


@case
async def only_pending_jobs_count(store: Store) -> None:
    """Blocked, running and ended jobs are not due."""
    source = await store.start("source", schedule=When(at=FUTURE))
    await store.start(blockers=waiting_for(source, chain_type="source"))
    await store.running()
    done = await store.start()
    await store.settle(completed(done))
    equal(await store.next_available_in("task"), None, "seconds")


@case
async def it_follows_what_happens(store: Store) -> None:
    """Jobs that were put back, triggered or unblocked are due at their new time."""
    claimed = await store.running()
    await store.settle(put_back(claimed, schedule=later(700)))
    await about(store, 700, "task")
    await store.trigger(claimed.job.id)
    equal(await store.next_available_in("task"), 0, "after the trigger")


@case
async def time_passes(store: Store) -> None:
    """A job for later is due when its time is reached."""
    await store.start(schedule=later(0.2))
    await store.elapse(0.3)
    equal(await store.next_available_in("task"), 0, "after its time")


@case
async def empty_call(store: Store) -> None:
    """Without types, the result is None."""
    await store.start()
    equal(await store.next_available_in(), None, "seconds")
