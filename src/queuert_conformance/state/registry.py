"""What is known of workers: what they tell, whether they are alive, and what they handled."""

from __future__ import annotations

from typing import Any, cast

from queuert.ports.state import Placing
from queuert.records.workers import WorkerAbout, WorkerQueue, WorkerRow, WorkerType
from queuert_conformance.checks import check, equal, only, present, skip
from queuert_conformance.state.build import TASK, completed, queue, request
from queuert_conformance.state.store import Store, case, driver_case

SHORT = 0.1
"""Seconds between two registrations, for workers that are soon late."""


def about(*types: str, **fields: Any) -> WorkerAbout:
    """What a worker tells that has handlers for these types."""
    queues = (WorkerQueue("default", tuple(WorkerType(name) for name in types)),)
    told: dict[str, Any] = {"host": "here", "pid": 12, "version": "1.2.3", "slots": 4, "queues": queues}
    return WorkerAbout(**{**told, **fields})


async def worker(store: Store, worker_id: str) -> WorkerRow:
    return only([row for row in await store.workers() if row.id == worker_id], "workers with this id")


async def state(store: Store, worker_id: str) -> str:
    return (await worker(store, worker_id)).state


@driver_case
async def what_a_worker_tells(store: Store) -> None:
    """What a worker tells of itself is listed as it was told."""
    told = WorkerAbout(
        host="höst-1",
        pid=2**31 + 7,
        version="1.2.3",
        release="2026-11-17 'a' \\ \"b\" €",
        slots=7,
        cluster_cap=40,
        seen_every=45.5,
        queues=(
            WorkerQueue("mail", (WorkerType("welcome"), WorkerType("bye", 2)), 5, 3, ("welcome", "bye", "other")),
            WorkerQueue("default", (WorkerType(TASK),)),
        ),
    )
    row = await store.register("one", about=told)
    equal(row.about, told, "what it told, as it was stored")
    equal((row.state, row.held), ("alive", 0), "state, and jobs")
    equal(await store.workers(), [row], "the workers")


@case
async def telling_nothing(store: Store) -> None:
    """A worker that tells nothing is listed, as older versions register."""
    row = await store.register("one")
    equal((row.about, row.state), (None, "alive"), "what it told, and its state")


@case
async def telling_again(store: Store) -> None:
    """What a worker tells is kept if it registers without it, and replaced if it tells it anew."""
    await store.register("one", about=about(TASK))
    equal((await store.register("one")).about, about(TASK), "after registering without it")
    equal((await store.register("one", about=about(TASK))).about, about(TASK), "after the same again")
    changed = about(TASK, "other", release="two")
    equal((await store.register("one", about=changed)).about, changed, "after something else")


@case
async def running_jobs_are_counted(store: Store) -> None:
    """The jobs that run under a worker's name are counted when workers are listed."""
    for name in ("busy", "idle"):
        await store.register(name, about=about(TASK))
    for _ in range(3):
        await store.start()
    claimed = (await store.claim(request(queue(TASK), worker="busy"))).jobs
    equal([row.held for row in await store.workers()], [3, 0], "jobs")
    equal((await store.register("busy")).held, 3, "jobs of a worker that registers again")
    await store.settle(completed(claimed[0]))
    equal((await worker(store, "busy")).held, 2, "jobs, after one is completed")


@case
async def a_worker_that_is_late(store: Store) -> None:
    """A worker that does not register in time is no longer alive, and not known to be dead."""
    await store.register("late", about=about(TASK, seen_every=SHORT))
    await store.register("other", about=about(TASK))
    await store.elapse(SHORT * 3)
    equal(await state(store, "late"), "unknown", "state")
    equal(await state(store, "other"), "alive", "state of one that has more time")
    equal((await store.register("late")).state, "alive", "state, after it registered again")


@driver_case
async def a_worker_that_left_jobs(store: Store) -> None:
    """A worker that ends and leaves jobs behind is listed as dead, until it registers again."""
    await store.register("one", about=about(TASK))
    await store.start()
    await store.claim(request(queue(TASK), worker="one"))
    check(not await store.forget("one"), "the row must be kept")
    equal(await state(store, "one"), "dead", "state")
    equal(await store.handled_types(TASK), [], "handled types")
    equal((await store.register("one")).state, "alive", "state, after it registered again")


@case
async def ending_twice(store: Store) -> None:
    """A worker whose row was removed starts anew: nothing is left of what it told."""
    await store.register("one", about=about(TASK))
    check(await store.forget("one"), "the row must be gone")
    row = await store.register("one")
    equal(row.about, None, "what it told")
    equal(row.registered_at, row.seen_at, "the times")


@case
async def types_that_are_handled(store: Store) -> None:
    """Types that a worker has a handler for are handled, in the order of the question."""
    equal(await store.handled_types(TASK), [], "without workers")
    equal(await store.handled_types(), [], "of no types")
    await store.register("one", about=about(TASK, "b"))
    await store.register("two", about=about("c"))
    equal(await store.handled_types("c", "missing", TASK), ["c", TASK], "handled types")


@driver_case
async def places_among_workers(store: Store) -> None:
    """Those that have a handler for a type and have not ended are counted, and ordered by id."""
    if not hasattr(store.operations, "places"):
        skip("the operations have no places()")
    placing = cast("Placing", store.operations)
    for name, types in (("a", (TASK,)), ("b", (TASK, "b")), ("c", (TASK,)), ("d", (TASK, "d"))):
        await store.register(name, about=about(*types))
    await store.forget("d")
    found = await store.driver.run(placing.places("b", [TASK, "b", "d", "missing"]))
    equal(found, {TASK: (1, 3), "b": (0, 1)}, "places")


@case
async def types_of_a_late_worker(store: Store) -> None:
    """A worker that is late does not count as one that handles its types."""
    await store.register("late", about=about(TASK, seen_every=SHORT))
    await store.elapse(SHORT * 3)
    equal(await store.handled_types(TASK), [], "handled types")


@case
async def types_that_may_be_handled(store: Store) -> None:
    """A worker that does not tell its types may have handlers for all."""
    await store.register("one", about=about("b"))
    await store.register("old")
    equal(await store.handled_types("b", TASK), ["b", TASK], "handled types")


@driver_case
async def where_a_type_was_handled(store: Store) -> None:
    """Where a type was last handled is known while the worker is, and after it has ended."""
    equal(await store.last_handled(TASK), [None], "before any worker")
    equal(await store.last_handled(), [], "of no types")
    await store.register("one", about=about(TASK, "b", host="first", release="r1"))
    found = present((await store.last_handled(TASK))[0], "where it is handled")
    equal((found.type_name, found.host, found.release), (TASK, "first", "r1"), "where it is handled")
    await store.elapse(0.01)
    await store.forget("one")
    after = present((await store.last_handled(TASK))[0], "where it was handled")
    equal((after.host, after.release), ("first", "r1"), "where it was handled")
    check(after.seen_at > found.seen_at, "it was last seen when it ended")
    equal([each and each.host for each in await store.last_handled("c", "b")], [None, "first"], "others")


@case
async def where_a_type_was_handled_by_the_dead(store: Store) -> None:
    """Where a type was handled outlives rows that are cleaned, with their `seen_at`."""
    row = await store.register("one", about=about(TASK, "b", host="first"))
    await store.elapse(0.1)
    newer = await store.register("two", about=about(TASK, host="second"))
    await store.elapse(0.1)
    equal(await store.clean_workers(0.05), ["one", "two"], "cleaned")
    equal(
        [each and (each.host, each.seen_at) for each in await store.last_handled(TASK, "b")],
        [("second", newer.seen_at), ("first", row.seen_at)],
        "where they were handled",
    )


@case
async def where_a_type_was_handled_last(store: Store) -> None:
    """The worker that was seen last counts, whether its row is gone or not."""
    await store.register("one", about=about(TASK, host="first"))
    await store.elapse(0.01)
    await store.register("two", about=about(TASK, host="second"))
    equal([each and each.host for each in await store.last_handled(TASK)], ["second"], "both are here")
    await store.elapse(0.01)
    await store.forget("one")
    equal([each and each.host for each in await store.last_handled(TASK)], ["first"], "one has ended since")
    await store.elapse(0.01)
    await store.register("two")
    equal([each and each.host for each in await store.last_handled(TASK)], ["second"], "the other was seen since")
