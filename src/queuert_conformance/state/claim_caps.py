"""claim: caps on the running jobs of a queue and of the whole cluster."""

from __future__ import annotations

from queuert.records.model import TypeLimit
from queuert_conformance.checks import equal
from queuert_conformance.state.build import LEASE, completed, given_back, new_job, put_back, queue, request
from queuert_conformance.state.claim import ids
from queuert_conformance.state.claim_order import taken
from queuert_conformance.state.store import Store, case, driver_case


async def ready(store: Store, type_name: str, number: int, priority: int = 100) -> list[str]:
    """Store ready jobs of one type; their ids."""
    jobs = [new_job(type_name, priority=priority) for _ in range(number)]
    await store.create(*jobs)
    return [job.id for job in jobs]


@case
async def a_queue_has_room_for_so_many(store: Store) -> None:
    """A queue's cap counts what this claim takes. Jobs that it leaves out are not `more`."""
    jobs = await ready(store, "task", 5)
    claim = request(queue("task", max_concurrency=3))
    equal(await taken(store, claim), (jobs[:3], False), "first claim")
    equal(await taken(store, claim), ([], False), "while three are running")


@case
async def settled_jobs_make_room(store: Store) -> None:
    """Jobs that have ended or were put back no longer count."""
    await ready(store, "task", 5)
    claim = request(queue("task", max_concurrency=2))
    first, second = (await store.claim(claim)).jobs
    await store.settle(completed(first))
    equal(len((await store.claim(claim)).jobs), 1, "claimed after one ended")
    await store.settle(put_back(second))
    equal(len((await store.claim(claim)).jobs), 1, "claimed after one was put back")


@driver_case
async def a_cap_counts_the_queue(store: Store) -> None:
    """All that was claimed through the queue counts, also types that are no members here."""
    await ready(store, "a", 3)
    await store.claim(request(queue("a", name="x"), limit=2, worker="another"))
    jobs = await ready(store, "b", 3)
    claim = request(queue("b", name="x", members=("b",), max_concurrency=3))
    equal(await taken(store, claim), (jobs[:1], False), "claimed jobs")


@case
async def disjoint_claims_share_a_cap(store: Store) -> None:
    """Two callers that know none of each other's types never exceed the cap of their queue."""
    for name in ("a", "b"):
        await ready(store, name, 5)
    claims = {name: request(queue(name, name="x", max_concurrency=3), worker=name, limit=2) for name in ("a", "b")}
    first, second = await store.claim(claims["a"]), await store.claim(claims["b"])
    equal((len(first.jobs), len(second.jobs), second.more), (2, 1, False), "claimed by each")
    equal(await taken(store, claims["a"]), ([], False), "while the queue is full")
    await store.settle(completed(second.jobs[0]), put_back(first.jobs[0]))
    equal(len((await store.claim(claims["b"])).jobs), 2, "with room for two")


@case
async def other_queues_do_not_count(store: Store) -> None:
    """A job counts in the queue it was claimed through, even if its type is a member of others."""
    await ready(store, "task", 7)
    await store.claim(request(queue("task", name="one"), limit=4))
    wanted = queue("task", name="two", max_concurrency=2)
    equal(len((await store.claim(request(wanted))).jobs), 2, "claimed through the other")


@case
async def a_job_uses_the_room_of_its_queue_alone(store: Store) -> None:
    """Within one claim, too, a job uses the room of the queue that it is claimed through alone."""
    urgent = await ready(store, "a", 2, priority=1)
    others = await ready(store, "b", 2, priority=2)
    for second_priority in (0, 1):
        queues = [
            queue("a", name="one", members=("a", "b"), max_concurrency=1),
            queue("b", name="two", priority=second_priority, members=("a", "b"), max_concurrency=1),
        ]
        result = await store.claim(request(*queues))
        equal((ids(result), result.more), ([urgent[0], others[0]], False), "claimed jobs")
        await store.settle(*(given_back(each) for each in result.jobs))


@case
async def a_job_that_is_claimed_again_counts_anew(store: Store) -> None:
    """However a claim ends, the job counts in the queue of its next claim, and no longer before."""
    await ready(store, "task", 1)
    for way, lease in (("put back", LEASE), ("given back", LEASE), ("reaped", 0), ("released", LEASE)):
        for name in ("one", "two"):
            wanted = queue("task", name=name, lease=lease, max_concurrency=1)
            (claimed,) = (await store.claim(request(wanted, worker=name))).jobs
            if way == "reaped":
                await store.reap("task")
            elif way == "released":
                await store.release(name, [])
            else:
                await store.settle(put_back(claimed) if way == "put back" else given_back(claimed))
    (job,) = await ready(store, "next", 1)
    wanted = queue("next", name="one", max_concurrency=1)
    equal(await taken(store, request(wanted)), ([job], False), "claimed when none is running")


@case
async def a_cap_of_zero_pauses(store: Store) -> None:
    """A queue with a cap of 0 is paused. Others are served."""
    await ready(store, "paused", 2, priority=1)
    (job,) = await ready(store, "task", 1)
    queues = [queue("paused", name="p", priority=-1, max_concurrency=0), queue("task", name="t")]
    equal(await taken(store, request(*queues)), ([job], False), "claimed jobs")


@case
async def an_overfull_queue_has_no_room(store: Store) -> None:
    """If more jobs run than the cap allows, the room is 0. Other queues keep their room."""
    await ready(store, "a", 6)
    await store.claim(request(queue("a", name="a"), limit=5))
    others = await ready(store, "b", 2)
    queues = [queue("a", name="a", max_concurrency=2), queue("b", name="b", max_concurrency=2)]
    equal(await taken(store, request(*queues)), (others, False), "claimed jobs")


@case
async def a_full_queue_lets_others_through(store: Store) -> None:
    """Jobs of a full queue do not block the jobs behind them."""
    urgent = await ready(store, "a", 4, priority=1)
    others = await ready(store, "b", 2, priority=2)
    queues = [queue("a", name="a", max_concurrency=1), queue("b", name="b")]
    equal(await taken(store, request(*queues, limit=3)), ([urgent[0], *others], False), "claimed jobs")


@case
async def the_cap_goes_by_order_across_types(store: Store) -> None:
    """The room of a queue goes to its most urgent jobs, of any type."""
    await ready(store, "a", 2, priority=2)
    urgent = await ready(store, "b", 2, priority=1)
    equal(await taken(store, request(queue("a", "b", max_concurrency=2))), (urgent, False), "claimed jobs")


@case
async def type_limits_hold_within_the_cap(store: Store) -> None:
    """A type's limit and its queue's cap both apply: the smaller of the two decides."""
    await ready(store, "a", 5, priority=1)
    await ready(store, "b", 5, priority=2)
    limits = queue(TypeLimit("a", 1, 60), TypeLimit("b", 9, 60), max_concurrency=3)
    types = [each.job.type_name for each in (await store.claim(request(limits))).jobs]
    equal(types, ["a", "b", "b"], "claimed types")


@driver_case
async def the_cluster_cap_counts_everything(store: Store) -> None:
    """The cluster's cap counts every running job, of any type and any worker."""
    await ready(store, "other", 2)
    await store.claim(request(queue("other"), worker="another"))
    jobs = await ready(store, "task", 5)
    equal(await taken(store, request(cluster_cap=4)), (jobs[:2], False), "first claim")
    equal(await taken(store, request(cluster_cap=4)), ([], False), "while four are running")
    equal(await taken(store, request(cluster_cap=1)), ([], False), "below what is running")
    equal((await taken(store, request(cluster_cap=5)))[0], jobs[2:3], "with room for one more")


@case
async def the_cluster_cap_spans_queues(store: Store) -> None:
    """The cluster's room goes to the most urgent queue first. A cap of 0 pauses everything."""
    slow, fast = await ready(store, "slow", 3), await ready(store, "fast", 2)
    queues = [queue("slow", name="s", priority=2), queue("fast", name="f", priority=1)]
    equal(await taken(store, request(*queues, cluster_cap=0)), ([], False), "a cap of 0")
    equal(await taken(store, request(*queues, cluster_cap=3)), ([*fast, slow[0]], False), "a cap of 3")


@case
async def both_caps_hold(store: Store) -> None:
    """A queue's cap and the cluster's cap both apply."""
    a, b = await ready(store, "a", 4, priority=1), await ready(store, "b", 4, priority=2)
    queues = [queue("a", name="a", max_concurrency=2), queue("b", name="b", max_concurrency=3)]
    equal(await taken(store, request(*queues, cluster_cap=4)), (a[:2] + b[:2], False), "claimed jobs")


@case
async def more_under_a_cap(store: Store) -> None:
    """Under a cap, `more` is true only if the cap would have room for a further job."""
    await ready(store, "task", 5)
    result = await store.claim(request(queue("task", max_concurrency=3), limit=2))
    equal((len(ids(result)), result.more), (2, True), "two of three")
    result = await store.claim(request(queue("task", max_concurrency=3), limit=1))
    equal((len(ids(result)), result.more), (1, False), "the third of three")


@driver_case
async def reaped_jobs_make_room(store: Store) -> None:
    """A job whose lease has expired counts until it is reaped, and not afterwards."""
    await ready(store, "task", 2)
    claim = request(queue("task", lease=0, max_concurrency=1))
    equal(len((await store.claim(claim)).jobs), 1, "claimed jobs")
    equal(len((await store.claim(claim)).jobs), 0, "claimed before the reaping")
    equal(len(await store.reap("task")), 1, "reaped jobs")
    equal(len((await store.claim(claim)).jobs), 1, "claimed after the reaping")
