"""claim: the order of jobs, the limits, and whether more jobs are waiting."""

from __future__ import annotations

from queuert.records.model import ClaimRequest, NewJob, TypeLimit, When
from queuert_conformance.checks import check, equal
from queuert_conformance.state.build import new_ids, new_job, queue, request
from queuert_conformance.state.claim import ids
from queuert_conformance.state.store import Store, case


async def taken(store: Store, claim: ClaimRequest) -> tuple[list[str], bool]:
    result = await store.claim(claim)
    return ids(result), result.more


def at(place: int) -> When:
    """Jobs of one call are due in the order of their places, each at a time of its own."""
    return When(after=0.1 + place / 100)


async def create_due(store: Store, *jobs: NewJob) -> None:
    """Store jobs, and wait until all of them are due."""
    await store.create(*jobs)
    await store.elapse(0.25)


@case
async def lower_priorities_first(store: Store) -> None:
    """Jobs are claimed by priority, lower first, whatever the order of their creation."""
    first, second, third, fourth = new_ids(4)
    await create_due(
        store,
        new_job(id=first, priority=50, schedule=at(0)),
        new_job(id=second, priority=-50, schedule=at(9)),
        new_job(id=third, priority=0, schedule=at(5)),
        new_job(id=fourth, priority=100, schedule=at(-9)),
    )
    equal(await taken(store, request()), ([second, third, first, fourth], False), "claimed jobs")


@case
async def then_earlier_times(store: Store) -> None:
    """Among equal priorities, the job scheduled earlier comes first."""
    first, second, third = new_ids(3)
    await create_due(
        store, new_job(id=first, schedule=at(3)), new_job(id=second, schedule=at(1)), new_job(id=third, schedule=at(2))
    )
    equal(await taken(store, request()), ([second, third, first], False), "claimed jobs")


@case
async def then_lower_ids(store: Store) -> None:
    """Among equal priorities and times, the lower id comes first."""
    wanted = new_ids(6)
    await create_due(store, *(new_job(id=each, schedule=at(0)) for each in reversed(wanted)))
    equal(await taken(store, request(limit=4)), (wanted[:4], True), "first claim")
    equal(await taken(store, request(limit=4)), (wanted[4:], False), "second claim")


@case
async def priority_decides_across_types(store: Store) -> None:
    """Within a queue there is one order for all its types."""
    first, second, third, fourth = new_ids(4)
    await create_due(
        store,
        new_job("a", id=first, priority=4, schedule=at(0)),
        new_job("b", id=second, priority=1, schedule=at(0)),
        new_job("a", id=third, priority=1, schedule=at(-1)),
        new_job("c", id=fourth, priority=2, schedule=at(0)),
    )
    claim = request(queue("a", "b", "c"))
    equal(await taken(store, claim), ([third, second, fourth, first], False), "claimed jobs")


@case
async def queue_priority_comes_before_all(store: Store) -> None:
    """A queue with a lower priority number is served first, whatever its jobs' priorities."""
    urgent, slow, negative = new_ids(3)
    await create_due(
        store,
        new_job("slow", id=slow, priority=-9, schedule=at(0)),
        new_job("urgent", id=urgent, priority=900, schedule=at(5)),
        new_job("negative", id=negative, priority=901, schedule=at(9)),
    )
    queues = [queue("slow", priority=5), queue("urgent", priority=1), queue("negative", priority=-1)]
    equal(await taken(store, request(*queues, limit=2)), ([negative, urgent], True), "claimed jobs")
    equal(await taken(store, request(*queues)), ([slow], False), "the rest")


@case
async def queues_of_equal_priority_mix(store: Store) -> None:
    """Among queues of equal priority, the jobs' own order decides."""
    first, second, third, fourth = new_ids(4)
    await store.create(
        new_job("a", id=first, priority=3),
        new_job("b", id=second, priority=2),
        new_job("a", id=third, priority=1),
        new_job("b", id=fourth, priority=4),
    )
    claim = request(queue("a", name="one", priority=7), queue("b", name="two", priority=7))
    equal(await taken(store, claim), ([third, second, first, fourth], False), "claimed jobs")


@case
async def the_limit_of_the_request(store: Store) -> None:
    """A claim takes at most `limit` jobs, and `more` is true exactly if more jobs are waiting."""
    jobs = [new_job() for _ in range(5)]
    await store.create(*jobs)
    wanted = [job.id for job in jobs]
    equal(await taken(store, request(limit=2)), (wanted[:2], True), "two of five")
    equal(await taken(store, request(limit=3)), (wanted[2:], False), "exactly the rest")
    equal(await taken(store, request(limit=3)), ([], False), "nothing left")


@case
async def the_limit_of_a_type(store: Store) -> None:
    """A type's limit caps its jobs. Jobs behind them are taken. Capped jobs are not `more`."""
    heads = [new_job("capped", priority=1) for _ in range(4)]
    others = [new_job("free", priority=2) for _ in range(3)]
    await store.create(*heads, *others)
    claim = request(queue(TypeLimit("capped", 2, 60), TypeLimit("free", 100, 60)))
    wanted = [job.id for job in heads[:2] + others]
    equal(await taken(store, claim), (wanted, False), "claimed jobs")


@case
async def a_type_limit_of_zero(store: Store) -> None:
    """No job of a type with a limit of 0 is taken, and none is `more`."""
    await store.start("capped", priority=1)
    free = await store.start("free")
    claim = request(queue(TypeLimit("capped", 0, 60), TypeLimit("free", 100, 60)))
    equal(await taken(store, claim), ([free], False), "claimed jobs")


@case
async def more_counts_only_what_the_request_left_out(store: Store) -> None:
    """`more` is true only if the request's own limit alone left out a job."""
    await store.create(*(new_job("capped", priority=1) for _ in range(3)), new_job("free", priority=2))
    types = (TypeLimit("capped", 1, 60), TypeLimit("free", 100, 60))
    check((await taken(store, request(queue(*types), limit=1)))[1], "a job behind the request's limit is more")
    check(not (await taken(store, request(queue(*types), limit=2)))[1], "capped jobs are not more")


@case
async def limits_across_queues(store: Store) -> None:
    """The request's limit is for all queues together. Each type's limit applies within it."""
    await store.create(*(new_job(name) for name in ("a", "b", "c") for _ in range(4)))
    queues = [
        queue("a", name="one", priority=1, limit=2),
        queue("b", name="two", priority=2, limit=3),
        queue("c", name="three", priority=3, limit=1),
    ]
    result = await store.claim(request(*queues, limit=6))
    equal([each.job.type_name for each in result.jobs], ["a", "a", "b", "b", "b", "c"], "claimed types")
    check(not result.more, "there is no more: every type's limit is used up")


@case
async def future_jobs_do_not_hide_ready_ones(store: Store) -> None:
    """Jobs for later are not claimed and do not count as more, even if they are more urgent."""
    await store.create(*(new_job(priority=-number, schedule=When(after=3600)) for number in range(50)))
    ready = await store.start(priority=500)
    equal(await taken(store, request(limit=1)), ([ready], False), "claimed jobs")
