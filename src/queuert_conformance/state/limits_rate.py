"""claim, with rates: how many jobs of a key begin in a time."""

from __future__ import annotations

from queuert.records.limits import RateRule
from queuert_conformance.checks import check, equal, only, present, sooner_than
from queuert_conformance.state.build import completed, given_back
from queuert_conformance.state.limits import NAME, declare, job, keys, lane, take
from queuert_conformance.state.store import Store, case


@case
async def so_many_begin_in_a_time(store: Store) -> None:
    """Then the lane is closed, also if they have ended; the claim tells when it opens."""
    await declare(store, rate=RateRule(3, 60))
    await store.create(*[job() for _ in range(5)])
    first = await take(store)
    equal(len(first.jobs), 3, "the first claim")
    await store.settle(*[completed(each) for each in first.jobs])
    second = await take(store)
    equal((second.jobs, second.more), ([], False), "the second claim")
    check(0 < present(second.next_in, "next_in") <= 60.1, f"it opens within a minute, got {second.next_in}")


@case
async def a_window_slides(store: Store) -> None:
    """Each begin makes room for another after the time has passed, and not before."""
    await declare(store, rate=RateRule(2, 0.4))
    await store.create(*[job() for _ in range(9)])
    begun = [present(each.job.last_attempt_at, "its begin") for each in (await take(store, 1)).jobs]
    while len(begun) < 6:
        await store.elapse(0.13)
        begun += [present(each.job.last_attempt_at, "its begin") for each in (await take(store)).jobs]
    for early, late in zip(begun, begun[2:], strict=False):
        check((late - early).total_seconds() > 0.4, f"three begins within 0.4 s: {early} and {late}")


@case
async def a_begin_counts_although_it_is_given_back(store: Store) -> None:
    """The job goes back to its place, and the rate is used up."""
    await declare(store, rate=RateRule(1, 60))
    await store.create(job(), job())
    claimed = only((await take(store)).jobs, "claimed jobs")
    await store.settle(given_back(claimed))
    equal(len((await take(store)).jobs), 0, "jobs after it was given back")


@case
async def smooth_rates_are_spaced(store: Store) -> None:
    """One at a time, at a distance."""
    await declare(store, rate=RateRule(2, 2, smooth=True))
    await store.create(*[job() for _ in range(9)])
    with sooner_than(1):
        equal(len((await take(store)).jobs), 1, "the first claim")
        equal(len((await take(store)).jobs), 0, "the next one, at once")
    await store.elapse(1.1)
    equal(len((await take(store)).jobs), 1, "after a half of the time")


@case
async def each_key_has_its_own_rate(store: Store) -> None:
    """A key that is closed is not in the way of others."""
    await declare(store, rate=RateRule(1, 60))
    await store.create(*[job(key) for key in "aab"])
    equal(sorted(keys(await take(store))), ["a", "b"], "the first claim")
    await store.create(job("c"))
    equal(keys(await take(store)), ["c"], "the second claim")


@case
async def a_rate_is_changed_at_run_time(store: Store) -> None:
    """What has begun before counts, also if the time is longer now."""
    await declare(store, rate=RateRule(2, 0.05))
    await store.create(*[job() for _ in range(9)])
    equal(len((await take(store)).jobs), 2, "the first claim")
    await store.set_limit(NAME, "a", {"rate": (3, 60.0)})
    equal(len((await take(store)).jobs), 1, "what the new rate leaves")
    await store.set_limit(NAME, "a", {"rate": None})
    equal(len((await take(store)).jobs), 6, "without a rate")


@case
async def a_job_closes_its_lane(store: Store) -> None:
    """The job is back at the head of its line, and keeps its attempt; no job of the key begins."""
    await declare(store, 5)
    first, second, other = job(), job(), job("b")
    await store.create(first, second)
    claimed = only((await take(store, 1)).jobs, "claimed jobs")
    before = await store.job(second.id)
    with sooner_than(2):
        await store.settle(given_back(claimed, closes=2.0))
        row = await store.job(first.id)
        equal((row.status, row.attempt, row.scheduled_at), ("pending", 0, before.scheduled_at), "the job")
        await store.create(other)
        result = await take(store)
        equal(keys(result), ["b"], "what is claimed while the lane is closed")
        check(0 < present(result.next_in, "next_in") <= 2.01, f"next_in must be the end, got {result.next_in}")
        row_of = {each.key: each for each in await store.limits()}
        check(row_of["a"].opens_at is not None, "the list must tell when the lane opens")
    await store.elapse(2.1)
    equal([each.job.id for each in (await take(store)).jobs], [first.id, second.id], "the order after it")
    equal(lane("a"), claimed.job.lane, "the lane that a claim returns")
