"""Two connections at once, in a forced order of steps.

If a case states that the second one waits, it waits for the first one's row. In a storage with a
single writer, it waits for the whole transaction of the first one. The result must be the same.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

from queuert.errors import JobIdExists
from queuert.records.model import Claimed, Deleted, Lease
from queuert_conformance.checks import check, equal, raises
from queuert_conformance.state.build import HOUR, completed, continued, failed, key, new_job, next_job, queue, request
from queuert_conformance.state.claim import ids
from queuert_conformance.state.dedup_waiting import throttled
from queuert_conformance.state.store import Store, driver_case, settled_soon


async def expect_waiting(task: asyncio.Task[object], what: str) -> None:
    check(not await settled_soon(task), f"{what} must wait for the first transaction to end")


async def quick_unless_single_writer(store: Store, task: asyncio.Task[object], what: str) -> None:
    """If rows are locked one by one, operations that skip them end while the first transaction is
    open.
    """
    if not store.single_writer:
        check(await settled_soon(task, 5), f"{what} must not wait for the first transaction")


@driver_case
async def a_key_is_taken_once_and_found(store: Store) -> None:
    """Two starts with one key: the second waits, and finds the chain after the first commits."""
    other = await store.second()
    async with store.transaction() as tx:
        first = await store.start(dedup=key("k"), tx=tx)
        starting = store.spawn(other.create(new_job(dedup=key("k"))))
        await expect_waiting(starting, "the second start")
    (made,) = await starting
    equal(made.existing and made.existing.first.id, first, "the chain that the second found")
    equal(len(await store.list_jobs()), 1, "stored jobs")


@driver_case
async def a_throttled_start_that_had_to_wait(store: Store) -> None:
    """A start that waits for another one counts its period from the moment at which it goes on."""
    other = await store.second()
    period, following = throttled(), throttled()
    async with store.transaction() as tx:
        await store.start(dedup=key("earlier"), tx=tx)
        starting = store.spawn(other.create(new_job(dedup=key("earlier")), following))
        await expect_waiting(starting, "a start")
        await store.create(period, tx=tx)
        claimed = [each.job.id for each in (await store.claim(tx=tx)).jobs]
        check(period.id in claimed, "the chain of the period must be claimed")
    await starting
    due = (await store.job(following.id)).scheduled_at - (await store.job(period.id)).created_at
    equal(due, timedelta(seconds=HOUR), "the time between two chains")


@driver_case
async def a_key_that_was_rolled_back(store: Store) -> None:
    """Two starts with one key: the second waits, and creates if the first rolls back."""
    other = await store.second()
    job = new_job(dedup=key("k"))
    async with store.rolled_back() as tx:
        await store.start(dedup=key("k"), tx=tx)
        starting = store.spawn(other.create(job))
        await expect_waiting(starting, "the second start")
    (made,) = await starting
    equal((made.existing, made.job_id), (None, job.id), "what the second stored")
    equal([row.id for row in await store.list_jobs()], [job.id], "stored jobs")


@driver_case
async def a_key_of_an_ended_chain(store: Store) -> None:
    """Two starts with the key of an ended chain: one stores a new chain, the other finds it."""
    other = await store.second()
    await store.finish(await store.start(dedup=key("k")))
    async with store.transaction() as tx:
        first = await store.start(dedup=key("k"), tx=tx)
        starting = store.spawn(other.create(new_job(dedup=key("k"))))
        await expect_waiting(starting, "the second start")
    (made,) = await starting
    equal(made.existing and made.existing.first.id, first, "the chain that the second found")


@driver_case
async def an_id_is_taken_once(store: Store) -> None:
    """Two calls store the same id: the second raises JobIdExists after the first commits."""
    other = await store.second()
    job = new_job()
    async with store.transaction() as tx:
        await store.create(job, tx=tx)
        creating = store.spawn(other.create(new_job("another", id=job.id)))
        await expect_waiting(creating, "the second one")
    with raises(JobIdExists, "the id that the first stored"):
        await creating
    equal((await store.job(job.id)).type_name, "task", "type of the stored job")


@driver_case
async def no_job_is_claimed_twice(store: Store) -> None:
    """A job that is being claimed is not claimed again. With row locks, no claim waits."""
    other = await store.second()
    await store.create(new_job(), new_job())
    async with store.transaction() as tx:
        first = await store.claim(request(limit=1), tx=tx)
        claiming = store.spawn(other.claim(request(limit=2)))
        await quick_unless_single_writer(store, claiming, "a claim")
    second = await claiming
    equal(len(ids(second)), 1, "jobs of the second claim")
    check(ids(first) != ids(second), "both must not get the same job")


@driver_case
async def a_rolled_back_claim_is_free_again(store: Store) -> None:
    """A job whose claim was rolled back can be claimed by another."""
    other = await store.second()
    job = await store.start()
    async with store.rolled_back() as tx:
        await store.claim_one(tx=tx)
        claiming = store.spawn(other.claim())
        await settled_soon(claiming)
    claimed = ids(await claiming) or ids(await other.claim())
    equal(claimed, [job], "claimed by the other")


@driver_case
async def many_claim_at_once(store: Store) -> None:
    """However many claims run at once, every job is claimed exactly once."""
    other = await store.second()
    jobs = [new_job() for _ in range(60)]
    await store.create(*jobs)
    found: list[str] = []

    async def take(connection: Store) -> None:
        while claimed := ids(await connection.claim(request(limit=4))):
            found.extend(claimed)

    await asyncio.gather(*(store.spawn(take(each)) for each in (store, other, store, other)))
    equal(sorted(found), sorted(job.id for job in jobs), "claimed jobs")


@driver_case
async def a_cap_is_exact(store: Store) -> None:
    """A claim under a cap waits for another under the same cap, and counts its jobs."""
    other = await store.second()
    await store.create(*(new_job() for _ in range(6)))
    claim = request(queue("task", max_concurrency=3))
    async with store.transaction() as tx:
        first = await store.claim(request(queue("task", max_concurrency=3), limit=2), tx=tx)
        claiming = store.spawn(other.claim(claim))
        await expect_waiting(claiming, "a claim under the same cap")
    equal((len(ids(first)), len(ids(await claiming))), (2, 1), "jobs of both claims")


@driver_case
async def a_cluster_cap_is_exact(store: Store) -> None:
    """A claim under the cluster's cap waits for another, and gets its room after a rollback."""
    other = await store.second()
    await store.create(*(new_job() for _ in range(6)))
    async with store.rolled_back() as tx:
        equal(len(ids(await store.claim(request(cluster_cap=3), tx=tx))), 3, "jobs of the first")
        claiming = store.spawn(other.claim(request(cluster_cap=3)))
        await expect_waiting(claiming, "a claim under the cluster's cap")
    equal(len(ids(await claiming)), 3, "jobs of the second")


@driver_case
async def a_claim_that_is_held_cannot_be_settled(store: Store) -> None:
    """A settlement waits for the transaction that holds the claim."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        settling = store.spawn(other.settle(failed(claimed)))
        await expect_waiting(settling, "the settlement")
        equal((await store.settle(completed(claimed), tx=tx)).applied, [True], "the one with the lock")
    equal((await settling).applied, [False], "the other one, afterwards")
    equal(await store.statuses(claimed.job.id), ["completed"], "the job")


@driver_case
async def a_claim_that_is_only_looked_at_is_free(store: Store) -> None:
    """A claim that is held without a lock makes no other operation wait, not even a renewal."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, lock=False, tx=tx), "the claim must be seen")
        settling = store.spawn(other.settle(completed(claimed)))
        await quick_unless_single_writer(store, settling, "the settlement")
    equal((await settling).applied, [True], "the settlement")
    async with store.transaction() as tx:
        check(not await store.hold(claimed, lock=False, tx=tx), "a claim that has ended must not be seen")


@driver_case
async def a_held_claim_and_the_key_of_its_chain(store: Store) -> None:
    """A deletion waits for the holder of a claim, and does not lock its key meanwhile."""
    other = await store.second()
    claimed = await store.running(dedup=key("again"))
    chain = claimed.job.chain_id

    async def delete() -> Deleted:
        async with other.transaction() as theirs:  # a deadlock would undo it, and it would not be tried again
            return await other.delete(chain, tx=theirs)

    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        deleting = store.spawn(delete())
        await expect_waiting(deleting, "the deletion")
        successor = new_job(dedup=key("again", exclude=[chain]))
        (created,) = await store.create(successor, tx=tx)
        equal(created.job_id, successor.id, "the successor")
        equal((await store.settle(completed(claimed), tx=tx)).applied, [True], "the holder")
    equal([row.first.id for row in (await deleting).chains], [chain], "what was deleted")
    equal(await store.statuses(successor.id), ["pending"], "the successor, afterwards")


@driver_case
async def a_locked_chain_stays_current(store: Store) -> None:
    """A continuation waits for a transaction that has read the chain with a lock."""
    other = await store.second()
    job = await store.start()
    following = next_job(await store.job(job))
    async with store.transaction() as tx:
        await store.chains(job, lock=True, tx=tx)
        continuing = store.spawn(other.settle(continued(job, following)))
        await expect_waiting(continuing, "the continuation")
        equal((await store.chain(job, tx=tx)).current.id, job, "the current job under the lock")
    equal((await continuing).applied, [True], "the continuation, afterwards")


@driver_case
async def a_job_ends_once(store: Store) -> None:
    """Two settlements of one claim at once: the second waits, and is not held."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        equal((await store.settle(completed(claimed, b"1"), tx=tx)).applied, [True], "the first")
        settling = store.spawn(other.settle(completed(claimed, b"2")))
        await expect_waiting(settling, "the second settlement")
    equal((await settling).applied, [False], "the second")
    equal((await store.job(claimed.job.id)).output, b"1", "output")


@driver_case
async def a_claim_that_is_held_is_owned(store: Store) -> None:
    """Renewal does not report a held job as lost. With row locks, it does not wait."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        renewing = store.spawn(other.renew(Lease(claimed.job.id, claimed.job.token or 0, 600)))
        await quick_unless_single_writer(store, renewing, "the renewal")
    equal(await renewing, [], "lost")


@driver_case
async def a_claim_that_is_held_is_not_reaped(store: Store) -> None:
    """Reaping skips a held job, even with an expired lease. With row locks, it does not wait."""
    other = await store.second()
    claimed = await store.running(lease=0)
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        reaping = store.spawn(other.reap("task"))
        await quick_unless_single_writer(store, reaping, "the reaping")
        equal((await store.settle(completed(claimed), tx=tx)).applied, [True], "the settlement")
    equal(await reaping, [], "reaped")
    equal(await store.statuses(claimed.job.id), ["completed"], "the job")


@driver_case
async def a_claim_that_is_held_is_not_taken_over(store: Store) -> None:
    """Reading the chain with a lock, or deleting it, waits for the holder and sees its result."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        taking = store.spawn(_take_over(other, claimed.job.chain_id))
        deleting = store.spawn(other.delete(claimed.job.chain_id))
        await expect_waiting(taking, "the one that takes over")
        await expect_waiting(deleting, "the deletion")
        equal((await store.settle(completed(claimed), tx=tx)).applied, [True], "the settlement")
    check(await taking in ("completed", None), "the status under the lock")
    equal([chain.current.status for chain in (await deleting).chains], ["completed"], "deleted")


async def _take_over(store: Store, chain_id: str) -> str | None:
    async with store.transaction() as tx:
        (chain,) = await store.chains(chain_id, lock=True, tx=tx)
        return None if chain is None else chain.current.status


@driver_case
async def a_claim_that_is_ended_meanwhile_is_not_held(store: Store) -> None:
    """Holding a claim waits for a transaction that is ending it, and returns its result."""
    other = await store.second()
    for keep in (True, False):
        claimed = await store.running()
        async with store.transaction() if keep else store.rolled_back() as tx:
            await store.settle(completed(claimed), tx=tx)
            holding = store.spawn(_hold(other, claimed))
            await expect_waiting(holding, "the holder")
        equal(await holding, not keep, "applied")


async def _hold(store: Store, claimed: Claimed) -> bool:
    async with store.transaction() as tx:
        return await store.hold(claimed, tx=tx)


@driver_case
async def a_locked_job_is_not_reaped(store: Store) -> None:
    """A job that is being settled is not reaped, although its lease has expired."""
    other = await store.second()
    claimed = await store.running(lease=0)
    async with store.transaction() as tx:
        equal((await store.settle(completed(claimed), tx=tx)).applied, [True], "the settlement")
        reaping = store.spawn(other.reap("task"))
        await quick_unless_single_writer(store, reaping, "the reaping")
    equal(await reaping, [], "reaped")
    equal(await store.statuses(claimed.job.id), ["completed"], "the job")


@driver_case
async def deletion_against_completion(store: Store) -> None:
    """Deleting a chain that is being completed waits, and the chain is gone afterwards."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        await store.settle(completed(claimed), tx=tx)
        deleting = store.spawn(other.delete(claimed.job.chain_id))
        await expect_waiting(deleting, "the deletion")
    equal([chain.current.status for chain in (await deleting).chains], ["completed"], "as it was deleted")
    equal(await store.statuses(claimed.job.id), [None], "the job")
