"""claim, with limits by key: whose turn it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

from queuert.records.dedup import Dedup
from queuert.records.limits import split_lane
from queuert_conformance.checks import check, equal
from queuert_conformance.state.build import continued, given_back, later, next_job, waiting_for
from queuert_conformance.state.limits import NAME, declare, job, keys, lane, take
from queuert_conformance.state.store import Store, case, driver_case


@case
async def keys_take_turns(store: Store) -> None:
    """A key with many jobs does not delay the others by more than one round."""
    await declare(store, 1000)
    await store.create(*[job("big") for _ in range(50)])
    await store.create(*[job(f"small-{n}") for n in range(4)])
    counted = Counter(keys(await take(store, 10)))
    equal((counted["big"], len(counted)), (6, 5), "jobs of the big key, and the number of keys")


@case
async def a_key_that_comes_later_is_next(store: Store) -> None:
    """Its jobs do not wait for those that were there before."""
    await declare(store, 1000)
    await store.create(*[job("big") for _ in range(50)])
    for _ in range(5):
        await take(store, 3)
    await store.create(job("small"))
    check("small" in keys(await take(store, 3)), "the key that came later must be among the next three")


@case
async def weights(store: Store) -> None:
    """A key with the weight 3 gets three turns for each turn of another."""
    await declare(store, 1000)
    await store.set_limit(NAME, "heavy", {"weight": 3.0})
    await store.create(*[job(key) for key in ("heavy", "light") for _ in range(40)])
    counted = Counter[str]()
    for _ in range(5):
        counted.update(keys(await take(store, 8)))
    check(abs(counted["heavy"] - 30) <= 3, f"the heavy key must get about 30 of 40, got {counted['heavy']}")


@driver_case
async def the_place_in_line(store: Store) -> None:
    """Jobs of the same key that are due and come first are counted. Running ones are not."""
    await declare(store, 1)
    first, second, other = job(), job(), job("b")
    for each in (first, second, other):
        await store.create(each)
    equal([await store.before(each.id) for each in (first, second, other)], [0, 1, 0], "before each job")
    equal(keys(await take(store, 1)), ["a"], "claimed")
    equal(await store.before(second.id), 0, "before the second, while the first runs")


@case
async def a_full_lane_is_not_in_the_way(store: Store) -> None:
    """Jobs of other keys are claimed, whatever waits before them."""
    await declare(store, 1)
    await store.create(*[job("full") for _ in range(30)])
    equal(keys(await take(store)), ["full"], "the first claim")
    await store.create(job("free"))
    equal(keys(await take(store)), ["free"], "the second claim")


@case
async def weights_of_jobs(store: Store) -> None:
    """If the limit takes the weight from jobs, that of the first job in line counts."""
    await declare(store, 1000, weight=None)
    await store.create(*[job("heavy", weight=3.0) for _ in range(40)], *[job("light") for _ in range(40)])
    counted = Counter[str]()
    for _ in range(5):
        counted.update(keys(await take(store, 8)))
    check(abs(counted["heavy"] - 30) <= 3, f"the heavy key must get about 30 of 40, got {counted['heavy']}")


@case
async def a_weight_that_was_set_goes_over_those_of_jobs(store: Store) -> None:
    """For one key, or for all."""
    await declare(store, 1000, weight=None)
    await store.set_limit(NAME, None, {"weight": 1.0})
    await store.set_limit(NAME, "light", {"weight": 3.0})
    await store.create(*[job("heavy", weight=9.0) for _ in range(40)], *[job("light") for _ in range(40)])
    counted = Counter[str]()
    for _ in range(5):
        counted.update(keys(await take(store, 8)))
    check(abs(counted["light"] - 30) <= 3, f"the other key must get about 30 of 40, got {counted['light']}")
    equal((await store.get_limit(NAME, "heavy")).rule.weight, 1.0, "the weight of the first key")


@case
async def every_way_into_a_line_keeps_the_weight(store: Store) -> None:
    """A start, a job that was blocked or not due, a continuation, and a start that replaces."""
    await declare(store, 1000, weight=None)
    blocker, before = await store.start("other"), await store.running("before")
    replaced: dict[str, Any] = {
        "dedup": Dedup("key", scope="waiting", window=60),
        "collapse": "replace",
        "schedule": later(0),
    }
    await store.create(job("replaced", **replaced))
    await store.create(
        job("started", weight=8.0),
        job("blocked", weight=8.0, blockers=waiting_for(blocker, chain_type="other")),
        job("scheduled", weight=8.0, schedule=later(2)),
        job("replaced", weight=8.0, **replaced),
        job("light"),
    )
    await store.settle(continued(before, next_job(before.job, "task", lane=lane("following"), weight=8.0)))
    await store.finish(blocker)
    await store.elapse(2.1)
    taken = (await take(store, 5)).jobs
    expected = ["blocked", "following", "replaced", "scheduled", "started"]
    equal(sorted(split_lane(each.job.lane or "")[1] for each in taken), expected, "the keys that come first")
    await store.settle(*[given_back(each) for each in taken])
    await store.create(*[job(key, priority=200) for key in expected for _ in range(3)])
    # The lane that was left is next; the others come at a distance of 1/8 each.
    counted = Counter(keys(await take(store, 11)))
    equal(counted, Counter({"light": 1, **dict.fromkeys(expected, 2)}), "the same after they were put back")
