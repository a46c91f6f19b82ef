"""repair and cancel_chains, with limits by key: which key a job has then, and which one goes on."""

from __future__ import annotations

from queuert.records.dedup import Dedup
from queuert.records.model import Cancelled, Claimed, NewJob
from queuert_conformance.checks import check, equal, only, present, same_json
from queuert_conformance.state.build import (
    ERROR,
    completed,
    continued,
    end_as,
    expired,
    failed,
    later,
    new_job,
    next_job,
)
from queuert_conformance.state.limits import NAME, declare, job, keys, lane, take
from queuert_conformance.state.repair import NEW
from queuert_conformance.state.store import Store, case, driver_case


async def _fail_one(store: Store) -> Claimed:
    claimed = only((await take(store)).jobs, "the job that fails")
    await store.settle(failed(claimed))
    return claimed


@driver_case
async def a_repaired_job_has_the_key_of_its_new_input(store: Store) -> None:
    """It counts for the new key, and no longer for the old one."""
    await declare(store, 1)
    await store.create(job("a"))
    repaired = await _fail_one(store)
    row = present(await store.repair(repaired.job.id, NEW, lane=lane("b")), "row")
    equal((row.lane, row.status), (lane("b"), "pending"), "the repaired job")
    equal(row, await store.job(row.id), "the returned row")
    await store.create(job("a"), job("b"))
    began = (await take(store)).jobs
    equal(sorted(keys(await take(store))), [], "jobs beside them")
    equal(sorted(each.job.lane or "" for each in began), [lane("a"), lane("b")], "keys that run one job each")
    check(row.id in {each.job.id for each in began}, "the repaired job runs")
    await store.settle(*(completed(each) for each in began))
    equal(keys(await take(store)), ["b"], "the job that waited for it")


@case
async def a_repaired_job_may_get_or_lose_a_limit(store: Store) -> None:
    """The code that repairs it says which limit it has, if any."""
    await declare(store, 1)
    await store.create(job("a"))
    freed = await _fail_one(store)
    equal(present(await store.repair(freed.job.id, NEW), "row").lane, None, "the lane of a job without a limit")
    await store.create(job("a"))
    equal(len((await take(store)).jobs), 2, "jobs that run beside each other")
    plain = new_job("task")
    await store.create(plain)
    await store.settle(end_as("cancelled", plain.id))
    equal(present(await store.repair(plain.id, NEW, lane=lane("a")), "row").lane, lane("a"), "its lane")
    equal((await take(store)).jobs, [], "jobs of the full key")


@case
async def a_repaired_job_leaves_an_ordered_key(store: Store) -> None:
    """The key that it stopped goes on, and it joins the line of the other key."""
    await declare(store, 1, ordered=True)
    first, second = job("a"), job("a")
    await store.create(first, second)
    await _fail_one(store)
    holder, waiting = job("b"), job("b")
    await store.create(holder)
    began = only((await take(store)).jobs, "the job of the other key")
    await store.create(waiting)
    await store.repair(first.id, NEW, lane=lane("b"))
    following = only((await take(store)).jobs, "the job of the key that was stopped")
    equal(following.job.id, second.id, "the job of the key that was stopped")
    equal((await store.get_limit(NAME, "b")).holder, holder.id, "what holds the other key")
    await store.settle(completed(began))
    for expected in (waiting, first):
        claimed = only((await take(store)).jobs, "the next job of the other key")
        equal(claimed.job.id, expected.id, "the next job of the other key")
        await store.settle(completed(claimed))


@case
async def a_repaired_job_with_the_same_key_keeps_it(store: Store) -> None:
    """It still holds it, before others with a better place."""
    await declare(store, 1, ordered=True)
    first, second = job(), job(priority=1)
    await store.create(first)
    await _fail_one(store)
    await store.create(second)
    await store.repair(first.id, NEW, lane=lane())
    equal(only((await take(store)).jobs, "claimed jobs").job.id, first.id, "the job that holds the key")


@case
async def a_repaired_job_has_the_weight_of_its_new_input(store: Store) -> None:
    """Also if its key is the same."""
    await declare(store, 1000, weight=None)
    await store.create(job("heavy"))
    repaired = await _fail_one(store)
    await store.repair(repaired.job.id, NEW, lane=lane("heavy"), weight=3.0)
    await store.create(*[job("heavy", weight=3.0) for _ in range(40)], *[job("light") for _ in range(40)])
    equal(keys(await take(store, 40)).count("heavy"), 30, "turns of the heavy key")


@case
async def a_rolled_back_repair_changes_no_key(store: Store) -> None:
    """The job still stops its old key."""
    await declare(store, 1, ordered=True)
    first = job("a")
    await store.create(first, job("a"))
    await _fail_one(store)
    async with store.rolled_back() as tx:
        await store.repair(first.id, NEW, lane=lane("b"), tx=tx)
    equal((await take(store)).jobs, [], "jobs that may begin")
    equal((await store.job(first.id)).lane, lane("a"), "the lane of the job")


@case
async def a_waiting_chain_that_is_replaced_has_the_new_key(store: Store) -> None:
    """Replaced by a start, or by `replace_waiting`."""
    await declare(store, 1)

    def keyed(key: str, collapse: str) -> NewJob:
        return job(key, dedup=Dedup("k", scope="waiting", window=60), collapse=collapse, schedule=later(0))

    first = keyed("a", "replace")
    await store.create(first)
    await store.create(keyed("b", "replace"))
    equal((await store.job(first.id)).lane, lane("b"), "the lane after a start")
    async with store.transaction() as tx:
        await store.create(keyed("c", "hold"), tx=tx)
        merged = job("d", id=first.id, dedup=Dedup("k", scope="waiting", window=60), collapse="hold")
        await store.replace_waiting(merged, tx=tx)
    equal((await store.job(first.id)).lane, lane("d"), "the lane after `replace_waiting`")
    equal(keys(await take(store)), ["d"], "the key that it runs with")


@driver_case
async def a_failed_chain_that_stops_a_key_is_cancelled(store: Store) -> None:
    """Its key goes on. The job keeps its error and its attempts."""
    await declare(store, 1, ordered=True)
    first, second = job(), job()
    await store.create(first, second)
    await _fail_one(store)
    before = await store.job(first.id)
    cancelled = await store.cancel(first.id)
    chain = only(cancelled.chains, "cancelled chains")
    equal((cancelled.running, cancelled.missing), (frozenset(), ()), "the rest of the answer")
    equal(chain, await store.chain(first.id), "the returned chain")
    row = chain.current
    equal((row.status, row.attempt, row.completed_by), ("cancelled", before.attempt, None), "the job")
    same_json(present(row.last_error, "last_error"), ERROR, "last_error")
    equal(only((await take(store)).jobs, "the next job").job.id, second.id, "the next job")
    equal(await store.cancel(first.id), Cancelled([]), "the answer to a second call")
    await store.repair(first.id, NEW, lane=lane())
    equal((await take(store)).jobs, [], "jobs beside the one that holds the key now")


@case
async def a_continuation_that_stops_a_key_is_cancelled(store: Store) -> None:
    """The chain has held the key since its first job."""
    await declare(store, 1, ordered=True)
    first, second = job(), job()
    await store.create(first, second)
    claimed = only((await take(store)).jobs, "the first job")
    following = next_job(claimed.job, "task", lane=lane())
    await store.settle(continued(claimed, following))
    await _fail_one(store)
    equal((await take(store)).jobs, [], "jobs behind the failed one")
    equal(len((await store.cancel(first.id)).chains), 1, "cancelled chains")
    equal(await store.statuses(first.id, following.id), ["completed", "cancelled"], "the jobs of the chain")
    equal(only((await take(store)).jobs, "the next job").job.id, second.id, "the next job")


@case
async def a_job_that_fails_by_hand_before_it_begins_again_is_cancelled(store: Store) -> None:
    """It holds its key since its first begin, also if a claim has seen it in line since."""
    await declare(store, 1, ordered=True, types=("task", "other"))
    first, second = job(), job()
    await store.create(first, second)
    await _fail_one(store)
    await store.retry(first.id)
    equal((await take(store, types=("other",))).jobs, [], "jobs of another type")
    await store.settle(failed(first.id))
    equal(len((await store.cancel(first.id)).chains), 1, "cancelled chains")
    equal(only((await take(store)).jobs, "the next job").job.id, second.id, "the next job")


@case
async def failed_chains_that_stop_no_key_stay_failed(store: Store) -> None:
    """Their limit keeps no order, or another job holds the key. Expired ones stay, too."""
    await declare(store, 1)
    await declare(store, 1, name="in order", ordered=True)
    await store.create(job("a"), job("a", name="in order"))
    began = (await take(store, names=(NAME, "in order"))).jobs
    never = job("a", name="in order")
    await store.create(never)
    await store.settle(failed(never.id))
    unordered = next(each for each in began if each.job.lane == lane("a"))
    holder = next(each for each in began if each.job.lane == lane("a", "in order"))
    await store.settle(failed(unordered), expired(holder))
    ids = [unordered.job.id, never.id, holder.job.id]
    before = await store.jobs(*ids)
    equal(await store.cancel(*ids), Cancelled([]), "answer")
    equal(await store.jobs(*ids), before, "jobs")


@case
async def a_rolled_back_cancellation_releases_no_key(store: Store) -> None:
    """The failed job still stops it."""
    await declare(store, 1, ordered=True)
    first = job()
    await store.create(first, job())
    await _fail_one(store)
    async with store.rolled_back() as tx:
        await store.cancel(first.id, tx=tx)
    equal((await take(store)).jobs, [], "jobs that may begin")
    equal(await store.statuses(first.id), ["failed"], "the job")
