"""Two connections at once, in a forced order of steps.

Where a case says that the second waits, it does so for the first one's row or, in a storage with a single writer,
for the whole of the first one's transaction. What must come out is the same.
"""

from __future__ import annotations

import asyncio

from queuert.conformance.checks import check, equal, raises
from queuert.conformance.state.build import (
    completed,
    continued,
    failed,
    key,
    new_job,
    next_job,
    queue,
    request,
)
from queuert.conformance.state.claim import ids
from queuert.conformance.state.store import Store, driver_case, settled_soon
from queuert.errors import JobIdExists
from queuert.model import Claimed, Deleted, Lease


async def expect_waiting(task: asyncio.Task[object], what: str) -> None:
    check(not await settled_soon(task), f"{what} must wait for the first transaction to end")


async def quick_unless_single_writer(store: Store, task: asyncio.Task[object], what: str) -> None:
    """Where rows are locked one by one, what skips them is done while the first transaction is open."""
    if not store.single_writer:
        check(await settled_soon(task, 5), f"{what} must not wait for the first transaction")


@driver_case
async def a_key_is_taken_once_and_found(store: Store) -> None:
    """Two start under one key: the second waits, and finds the first one's chain when that is committed."""
    other = await store.second()
    async with store.transaction() as tx:
        first = await store.start(dedup=key("k"), tx=tx)
        starting = store.spawn(other.create(new_job(dedup=key("k"))))
        await expect_waiting(starting, "the second start")
    (made,) = await starting
    equal(made.existing and made.existing.first.id, first, "the chain that the second found")
    equal(len(await store.list_jobs()), 1, "stored jobs")


@driver_case
async def a_key_that_was_rolled_back(store: Store) -> None:
    """Two start under one key: the second waits, and stores its own chain when the first is rolled back."""
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
    """Two start under the key of a chain that has ended: one of them stores a new one, the other finds it."""
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
    """Two store the same id: the second gets JobIdExists when the first is committed."""
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
    """A job that is being claimed is not claimed by another; nobody waits for it where rows are locked singly."""
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
    """A job whose claim is rolled back can be claimed by another."""
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
    """However many claim at once, every job is claimed exactly once."""
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
    """A claim under a cap waits for another under the same cap, and counts what that one took."""
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
    """A claim under the cluster's cap waits for another, and has the room of one that is rolled back."""
    other = await store.second()
    await store.create(*(new_job() for _ in range(6)))
    async with store.rolled_back() as tx:
        equal(len(ids(await store.claim(request(cluster_cap=3), tx=tx))), 3, "jobs of the first")
        claiming = store.spawn(other.claim(request(cluster_cap=3)))
        await expect_waiting(claiming, "a claim under the cluster's cap")
    equal(len(ids(await claiming)), 3, "jobs of the second")


@driver_case
async def a_claim_that_is_held_cannot_be_settled(store: Store) -> None:
    """Who settles a claim that another holds waits for that one."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        settling = store.spawn(other.settle(failed(claimed)))
        await expect_waiting(settling, "the settlement")
        equal((await store.settle(completed(claimed), tx=tx)).held, [True], "the one with the lock")
    equal((await settling).held, [False], "the other one, afterwards")
    equal(await store.statuses(claimed.job.id), ["completed"], "the job")


@driver_case
async def a_claim_that_is_only_looked_at_is_free(store: Store) -> None:
    """Who holds a claim without a lock keeps nobody waiting: above all not those who renew it."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, lock=False, tx=tx), "the claim must be seen")
        settling = store.spawn(other.settle(completed(claimed)))
        await quick_unless_single_writer(store, settling, "the settlement")
    equal((await settling).held, [True], "the settlement")
    async with store.transaction() as tx:
        check(not await store.hold(claimed, lock=False, tx=tx), "a claim that is over must not be seen")


@driver_case
async def a_held_claim_and_the_key_of_its_chain(store: Store) -> None:
    """Who deletes a chain waits for its holder, and meanwhile keeps nothing that the holder may come to: its key."""
    other = await store.second()
    claimed = await store.running(dedup=key("again"))
    chain = claimed.job.chain_id

    async def delete() -> Deleted:
        async with other.transaction() as theirs:  # a deadlock would undo it, and nobody would try again
            return await other.delete(chain, tx=theirs)

    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        deleting = store.spawn(delete())
        await expect_waiting(deleting, "the deletion")
        successor = new_job(dedup=key("again", exclude=[chain]))
        (created,) = await store.create(successor, tx=tx)
        equal(created.job_id, successor.id, "the successor")
        equal((await store.settle(completed(claimed), tx=tx)).held, [True], "the holder")
    equal([row.first.id for row in (await deleting).chains], [chain], "what was deleted")
    equal(await store.statuses(successor.id), ["pending"], "the successor, afterwards")


@driver_case
async def a_locked_chain_stays_current(store: Store) -> None:
    """Who continues a chain that another has read with a lock waits for that one."""
    other = await store.second()
    job = await store.start()
    following = next_job(await store.job(job))
    async with store.transaction() as tx:
        await store.chains(job, lock=True, tx=tx)
        continuing = store.spawn(other.settle(continued(job, following)))
        await expect_waiting(continuing, "the continuation")
        equal((await store.chain(job, tx=tx)).current.id, job, "the current job under the lock")
    equal((await continuing).held, [True], "the continuation, afterwards")


@driver_case
async def a_job_ends_once(store: Store) -> None:
    """Two settle one claim at once: the second waits and is told that it does not hold."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        equal((await store.settle(completed(claimed, b"1"), tx=tx)).held, [True], "the first")
        settling = store.spawn(other.settle(completed(claimed, b"2")))
        await expect_waiting(settling, "the second settlement")
    equal((await settling).held, [False], "the second")
    equal((await store.job(claimed.job.id)).output, b"1", "output")


@driver_case
async def a_claim_that_is_held_is_owned(store: Store) -> None:
    """Renewal does not count a job as lost because somebody holds it, nor wait where rows are locked singly."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        renewing = store.spawn(other.renew(Lease(claimed.job.id, claimed.job.token or 0, 600)))
        await quick_unless_single_writer(store, renewing, "the renewal")
    equal(await renewing, [], "lost")


@driver_case
async def a_claim_that_is_held_is_not_reaped(store: Store) -> None:
    """Nor does reaping wait for it, where rows are locked singly, though its lease has ended."""
    other = await store.second()
    claimed = await store.running(lease=0)
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        reaping = store.spawn(other.reap("task"))
        await quick_unless_single_writer(store, reaping, "the reaping")
        equal((await store.settle(completed(claimed), tx=tx)).held, [True], "the settlement")
    equal(await reaping, [], "reaped")
    equal(await store.statuses(claimed.job.id), ["completed"], "the job")


@driver_case
async def a_claim_that_is_held_is_not_taken_over(store: Store) -> None:
    """Who reads the chain with a lock, or deletes it, waits for the holder, and finds what that one has left."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        check(await store.hold(claimed, tx=tx), "the claim must be held")
        taking = store.spawn(_take_over(other, claimed.job.chain_id))
        deleting = store.spawn(other.delete(claimed.job.chain_id))
        await expect_waiting(taking, "the one who takes over")
        await expect_waiting(deleting, "the deletion")
        equal((await store.settle(completed(claimed), tx=tx)).held, [True], "the settlement")
    check(await taking in ("completed", None), "the status under the lock")
    equal([chain.current.status for chain in (await deleting).chains], ["completed"], "deleted")


async def _take_over(store: Store, chain_id: str) -> str | None:
    async with store.transaction() as tx:
        (chain,) = await store.chains(chain_id, lock=True, tx=tx)
        return None if chain is None else chain.current.status


@driver_case
async def a_claim_that_is_ended_meanwhile_is_not_held(store: Store) -> None:
    """Who would hold a claim that another is about to end waits for that one, and learns how it went."""
    other = await store.second()
    for keep in (True, False):
        claimed = await store.running()
        async with store.transaction() if keep else store.rolled_back() as tx:
            await store.settle(completed(claimed), tx=tx)
            holding = store.spawn(_hold(other, claimed))
            await expect_waiting(holding, "the holder")
        equal(await holding, not keep, "held")


async def _hold(store: Store, claimed: Claimed) -> bool:
    async with store.transaction() as tx:
        return await store.hold(claimed, tx=tx)


@driver_case
async def a_locked_job_is_not_reaped(store: Store) -> None:
    """A job that is being settled is not reaped, though its lease has ended."""
    other = await store.second()
    claimed = await store.running(lease=0)
    async with store.transaction() as tx:
        equal((await store.settle(completed(claimed), tx=tx)).held, [True], "the settlement")
        reaping = store.spawn(other.reap("task"))
        await quick_unless_single_writer(store, reaping, "the reaping")
    equal(await reaping, [], "reaped")
    equal(await store.statuses(claimed.job.id), ["completed"], "the job")


@driver_case
async def deletion_against_completion(store: Store) -> None:
    """A chain that is deleted while it is being completed waits, and is gone afterwards."""
    other = await store.second()
    claimed = await store.running()
    async with store.transaction() as tx:
        await store.settle(completed(claimed), tx=tx)
        deleting = store.spawn(other.delete(claimed.job.chain_id))
        await expect_waiting(deleting, "the deletion")
    equal([chain.current.status for chain in (await deleting).chains], ["completed"], "as it was deleted")
    equal(await store.statuses(claimed.job.id), [None], "the job")
