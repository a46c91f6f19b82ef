"""history and roll_up: what is counted of jobs, when, and how long it is kept."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from queuert.records.history import BOUNDS, DAY, FINE, FINE_BOUNDS, HOUR, MINUTE, UNTIMED, Tally
from queuert.records.model import Claimed, Settlement
from queuert_conformance.checks import check, equal, only, present, skip
from queuert_conformance.state.build import (
    TASK,
    cancelled,
    completed,
    continued,
    expired,
    failed,
    given_back,
    later,
    new_id,
    new_job,
    next_job,
    put_back,
    queue,
    request,
    rescheduled,
)
from queuert_conformance.state.store import Store, case, driver_case

_EVER = float(29 * DAY)


async def tallies(store: Store, *, step: int = DAY, tx: Any = None, **options: Any) -> list[Tally]:
    """Without the fine buckets, which count the same again."""
    return [each for each in await all_tallies(store, step=step, tx=tx, **options) if each.bucket < FINE]


async def all_tallies(store: Store, *, step: int = DAY, tx: Any = None, **options: Any) -> list[Tally]:
    return (await store.history(step, options.pop("since", _EVER), tx=tx, **options)).tallies


async def numbers(store: Store, type_name: str = TASK, *, tx: Any = None) -> dict[str, int]:
    """What happened, together; "ran" are the attempts that ended."""
    found: Counter[str] = Counter()
    for each in await tallies(store, tx=tx, type_name=type_name):
        found[each.what] += each.number
        if each.what != "begun" and each.bucket != UNTIMED:
            found["ran"] += each.number
    return {name: number for name, number in found.items() if number}


@driver_case
async def each_end_of_an_attempt(store: Store) -> None:
    """Every claim is counted as begun, and every end of one by what became of the job."""
    for end in (completed, failed, put_back, rescheduled, expired, cancelled):
        type_name = end.__name__
        await store.settle(end(await store.running(type_name)))
        what = {"put_back": "retried", "rescheduled": "retried"}.get(type_name, type_name)
        equal(await numbers(store, type_name), {"begun": 1, what: 1, "ran": 1}, type_name)
    first = await store.running()
    await store.settle(continued(first, next_job(first.job)))
    await store.settle(completed(await store.claim_one(), discard=True))
    equal(await numbers(store), {"begun": 2, "completed": 2, "ran": 2}, "a chain of two jobs, then discarded")


@case
async def what_is_not_counted(store: Store) -> None:
    """Settlements without effect, new, triggered or deleted jobs, and what is rolled back."""
    claim = await store.running()
    await store.settle(completed(claim))
    before = await tallies(store)
    await store.settle(completed(claim), failed(claim), cancelled(claim.job.id))
    chain_id = await store.start(schedule=later())
    await store.trigger(chain_id)
    await store.retry(chain_id, claim.job.id)
    async with store.rolled_back() as tx:
        await store.cancel(chain_id, tx=tx)
        equal((await numbers(store, tx=tx))["cancelled"], 1, "inside the transaction")
    await store.delete(chain_id)
    equal(await tallies(store), before, "what was counted")


@driver_case
async def a_claim_that_did_not_begin(store: Store) -> None:
    """It is taken back, if it is given back, or known not to have begun."""
    await store.settle(given_back(await store.running("returned")))
    await store.running("released")
    await store.release(_worker(await store.running("other")), [])
    await store.register("ahead")
    await store.create(new_job("reaped"), new_job("reaped"))
    wanted = request(queue("reaped", lease=0.05), limit=2, worker="ahead", at_once=1, first_ordinal=1)
    equal(len((await store.claim(wanted)).jobs), 2, "claimed")
    await store.elapse(0.1)
    equal(len(await store.reap("reaped")), 2, "reaped")
    found = [await numbers(store, name) for name in ("returned", "released", "other")]
    equal(found, [{}, {}, {}], "given back, and released")
    equal(await numbers(store, "reaped"), {"begun": 1, "lost": 1, "ran": 1}, "one of two had begun")


@driver_case
async def changes_by_hand(store: Store) -> None:
    """Jobs that did not run are counted without a time. Deleting a running one ends it."""
    chain_id = await store.start("cancelled")
    await store.cancel(chain_id, chain_id)
    equal(await numbers(store, "cancelled"), {"cancelled": 1}, "a pending job")
    claim = await store.running("stopped")
    await store.cancel(claim.job.chain_id)
    equal(await numbers(store, "stopped"), {"begun": 1, "cancelled": 1, "ran": 1}, "a running job")
    await store.finish(await store.start("finished"))
    await store.finish((await store.running("finished")).job.id)
    equal(await numbers(store, "finished"), {"begun": 1, "completed": 2, "ran": 1}, "completed by hand")
    claim = await store.running("again")
    await store.settle(failed(claim))
    await store.retry(claim.job.id, claim.job.id)
    await store.cancel(claim.job.chain_id)
    await store.repair(claim.job.id, b"{}")
    expected = {"begun": 1, "failed": 1, "retried": 2, "cancelled": 1, "ran": 1}
    equal(await numbers(store, "again"), expected, "retried and repaired")
    await store.delete((await store.running("deleted")).job.chain_id)
    equal(await numbers(store, "deleted"), {"begun": 1, "deleted": 1, "ran": 1}, "deleted while it was running")


@case
async def a_lost_attempt(store: Store) -> None:
    """It is counted as lost, with the time until the job was taken back."""
    await store.running(lease=0.05)
    await store.elapse(0.1)
    await store.reap(TASK)
    equal(await numbers(store), {"begun": 1, "lost": 1, "ran": 1}, "what was counted")


@driver_case
async def how_long_it_took(store: Store) -> None:
    """From when a job was due to its claim, and from there to its end: in buckets, and in all."""
    await store.start()
    await store.elapse(0.05)
    claim = await store.claim_one()
    await store.elapse(0.12)
    await store.settle(completed(claim))
    job = await store.job(claim.job.id)
    begun, ended = present(job.last_attempt_at, "begun"), present(job.completed_at, "ended")
    waited, ran = (begun - job.scheduled_at).total_seconds(), (ended - begun).total_seconds()
    found: dict[str, Tally] = {each.what: each for each in await tallies(store)}
    for what, took in (("begun", waited), ("completed", ran)):
        each = found[what]
        check(abs(each.seconds - took) < 0.001, f"{what}: {each.seconds} seconds, not {took}")
        equal((each.bucket, each.number), (bisect_right(BOUNDS, each.seconds), 1), what)
        fine = [one for one in await all_tallies(store) if one.what == what and one.bucket >= FINE]
        expected = (FINE + bisect_right(FINE_BOUNDS, each.seconds), 1, 0)
        equal([(one.bucket, one.number, one.seconds) for one in fine], [expected], f"{what}, in fine buckets")


@driver_case
async def fine_buckets_are_merged(store: Store) -> None:
    """Into one number for each, whatever was merged before. What is taken back is subtracted."""
    for _ in range(3):
        await store.settle(completed(await store.running()))
        await _all_rolled_up(store)
    await store.settle(given_back(await store.running()))
    for _ in range(2):
        found = await all_tallies(store)
        for what in ("begun", "completed"):
            fine = {one.bucket: one.number for one in found if one.what == what and one.bucket >= FINE}
            equal(sum(fine.values()), 3, f"{what}, in fine buckets")
            coarse: Counter[int] = Counter()
            for bucket, number in fine.items():
                coarse[bisect_right(BOUNDS, FINE_BOUNDS[bucket - FINE] * 0.9999)] += number
            equal(
                dict(coarse), {one.bucket: one.number for one in found if one.what == what and one.bucket < FINE}, what
            )
        await _all_rolled_up(store)


@driver_case
async def many_at_once(store: Store) -> None:
    """Jobs of several types in one claim, and in one settlement with several ends."""
    await store.create(*(new_job(name) for name in ("a", "b", "b", "c", "c", "c")))
    jobs = (await store.claim(request(queue("a", "b", "c"), limit=6))).jobs
    ends: dict[str, Callable[[Claimed], Settlement]] = {"a": completed, "b": failed, "c": put_back}
    await store.settle(*(ends[each.job.type_name](each) for each in jobs), cancelled(new_id()))
    equal(await numbers(store, "a"), {"begun": 1, "completed": 1, "ran": 1}, "a")
    equal(await numbers(store, "b"), {"begun": 2, "failed": 2, "ran": 2}, "b")
    equal(await numbers(store, "c"), {"begun": 3, "retried": 3, "ran": 3}, "c")
    await _all_rolled_up(store)
    equal(await numbers(store, "c"), {"begun": 3, "retried": 3, "ran": 3}, "after roll_up")


@case
async def steps_begin_at_multiples(store: Store) -> None:
    """Of the step, counted from 1970. What was before the first step is left out."""
    claim = await store.running()
    begun = present(claim.job.last_attempt_at, "begun")
    for step in (MINUTE, 5 * MINUTE, HOUR, DAY):
        found = only(await tallies(store, step=step, since=begun), "tallies")
        equal(found[:3], (TASK, int(begun.timestamp()) // step * step, "begun"), f"steps of {step}")
    equal(await tallies(store, step=MINUTE, since=begun + timedelta(minutes=1)), [], "from later on")
    equal(await tallies(store, type_name="other"), [], "another type")


@driver_case
async def without_statistics(store: Store) -> None:
    """Nothing is counted."""
    store.operations.statistics = False
    await store.settle(completed(await store.running()), given_back(await store.running("b")))
    claim = await store.running("c", lease=0.01)
    await store.settle(failed(claim))
    await store.retry(claim.job.id)
    await store.cancel(claim.job.chain_id)
    await store.repair(claim.job.id, b"{}")
    await store.claim_one("c", lease=0.01)
    await store.elapse(0.02)
    await store.reap("c")
    await store.delete((await store.running("d")).job.chain_id)
    await store.release(_worker(await store.running("e")), [])
    equal(await tallies(store), [], "what was counted")


@case
async def rolled_up(store: Store) -> None:
    """Minutes become hours, hours become days, and days are deleted: the numbers stay the same."""
    await store.settle(completed(await store.running()))
    await store.settle(completed(await store.running("other")))
    await _all_rolled_up(store)
    before = await all_tallies(store, step=MINUTE)
    for days, step in ((1, MINUTE), (2, HOUR), (13, DAY)):
        await _advance(store, days * DAY)
        await _all_rolled_up(store)
        found = await all_tallies(store, step=MINUTE)
        equal([each[2:5] for each in found], [each[2:5] for each in before], f"{days} days later")
        equal([each.at for each in found], [each.at // step * step for each in before], f"steps, {days} days later")
    await _advance(store, 16 * DAY)
    await _all_rolled_up(store)
    equal(await tallies(store, since=float(60 * DAY)), [], "after 32 days")


async def _all_rolled_up(store: Store) -> None:
    for _ in range(100):
        if not await store.roll_up(2):
            return
    raise AssertionError("roll_up always has more to do")


async def _advance(store: Store, seconds: float) -> None:
    if not store.has_clock:
        skip("the harness has no advance()")
    await store.elapse(seconds)


def _worker(*claims: Claimed) -> str:
    return present(claims[0].job.leased_by, "leased_by")
