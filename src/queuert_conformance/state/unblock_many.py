"""A chain with very many dependents: the completion frees the first ones, and later steps the
others. Each job is counted down once, whatever happens in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from queuert.records.model import UNBLOCKED_AT_ONCE, Freed, NewJob, Settled, Unblocked, When
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import FUTURE, cancelled, completed, continued, end_as, new_ids, new_job, next_job
from queuert_conformance.state.store import Store, case, driver_case, settled_soon
from queuert_conformance.state.unblock import SOURCE, behind, freed, sources


async def waiting(store: Store, number: int, *chain_ids: str) -> list[str]:
    """New jobs that wait for these chains, in the order of their ids."""
    ids = new_ids(number)
    await store.create(*(new_job(id=each, **behind(*chain_ids)) for each in ids))
    return ids


async def complete(store: Store, *, at_once: int) -> Settled:
    """Claim and complete the next source, which may free this many dependents at once."""
    store.operations.unblocked_at_once = at_once
    return await store.settle(completed(await store.claim_one(SOURCE)))


def ready(ids: Sequence[str]) -> list[Unblocked]:
    return [Unblocked(each, "task", ready=True) for each in ids]


def ids_of(step: Freed) -> list[str]:
    return [each.job_id for each in step.unblocked]


@case
async def the_first_thousand_are_freed_at_once(store: Store) -> None:
    """A completion frees 1,000 dependents itself, and tells that there are more."""
    equal(store.operations.unblocked_at_once, UNBLOCKED_AT_ONCE, "unblocked_at_once")
    (source,) = await sources(store, 1)
    jobs = await waiting(store, UNBLOCKED_AT_ONCE + 5, source)
    settled = await store.settle(completed(await store.claim_one(SOURCE)))
    equal((freed(settled), settled.more), (jobs[:UNBLOCKED_AT_ONCE], True), "freed by the completion, and more")
    equal(await store.statuses(source, *jobs[-6:]), ["completed", "pending", *["blocked"] * 5], "statuses")
    equal(await store.continue_unblocking(1000), Freed(ready(jobs[-5:]), chain_id=source), "the rest")


@case
async def a_thousand_leave_nothing(store: Store) -> None:
    """With 1,000 dependents or fewer, nothing is left for later."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 4, source)
    settled = await complete(store, at_once=4)
    equal((freed(settled), settled.more, await store.is_unblocking()), (jobs, False, False), "freed, and work left")
    equal(await store.continue_unblocking(10), Freed([]), "a step without work")


@driver_case
async def steps_free_the_rest_in_id_order(store: Store) -> None:
    """Each step frees as many as it may. The last one tells that nothing is left."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 8, source)
    settled = await complete(store, at_once=3)
    equal((freed(settled), settled.more, await store.is_unblocking()), (jobs[:3], True, True), "the completion")
    for first, more in ((3, True), (5, True), (7, False)):
        step = await store.continue_unblocking(2)
        equal((ids_of(step), step.more), (jobs[first : first + 2], more), f"the step from {first}")
        equal(await store.is_unblocking(), more, "work left")
    equal(await store.continue_unblocking(2), Freed([]), "a step after the last one")
    equal(set(await store.statuses(*jobs)), {"pending"}, "statuses")
    equal({row.blockers_left for row in await store.jobs(*jobs) if row is not None}, {0}, "blockers_left")
    equal(len((await store.claim()).jobs), 8, "claimed")


@case
async def a_step_counts_each_job_once(store: Store) -> None:
    """A dependent of two chains that complete with many others is freed by the second one."""
    await sources(store, 1)
    first = (await store.claim_one(SOURCE)).job.id
    (second,) = await sources(store, 1)
    jobs = await waiting(store, 4, first, second)
    await complete(store, at_once=1)
    for left in ([1, 2, 2, 2], [1, 1, 2, 2], [1, 1, 1, 2], [1, 1, 1, 1]):
        equal([row.blockers_left for row in await store.jobs(*jobs) if row is not None], left, "blockers_left")
        await store.continue_unblocking(1)
    equal(set(await store.statuses(*jobs)), {"blocked"}, "statuses")
    equal(freed(await store.finish(first)), jobs, "freed by the other chain")


@case
async def two_chains_share_the_limit(store: Store) -> None:
    """The limit is that of the whole settlement. A job behind both chains is counted twice."""
    await sources(store, 2)
    claims = [await store.claim_one(SOURCE) for _ in range(2)]
    first, second = sorted(claim.job.id for claim in claims)
    both = await waiting(store, 3, first, second)
    alone = await waiting(store, 1, second)
    store.operations.unblocked_at_once = 4
    settled = await store.settle(*map(completed, claims))
    equal((freed(settled), settled.more), (both[:1], True), "freed by the completion")
    equal([row.blockers_left for row in await store.jobs(*both) if row is not None], [0, 1, 1], "blockers_left")
    equal(await store.continue_unblocking(9), Freed(ready([*both[1:], *alone]), chain_id=second), "the rest")


@case
async def a_chain_that_is_not_reached_is_remembered(store: Store) -> None:
    """If the limit is used up by one chain, all dependents of the next one are left."""
    await sources(store, 2)
    claims = [await store.claim_one(SOURCE) for _ in range(2)]
    first, second = sorted(claim.job.id for claim in claims)
    one, two = await waiting(store, 2, first), await waiting(store, 2, second)
    store.operations.unblocked_at_once = 2
    settled = await store.settle(*map(completed, claims))
    equal((freed(settled), settled.more), (one, True), "freed by the completion")
    equal(ids_of(await store.continue_unblocking(9)), two, "freed later")


@case
async def without_a_worker_all_are_freed_at_once(store: Store) -> None:
    """A chain that is completed without a token frees all its dependents."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 6, source)
    store.operations.unblocked_at_once = 2
    settled = await store.finish(source)
    equal((freed(settled), settled.more, await store.is_unblocking()), (jobs, False, False), "freed")


@case
async def by_hand_and_by_a_worker_in_one_call(store: Store) -> None:
    """Only the chains that are completed with a token have a limit."""
    await sources(store, 1)
    claim = await store.claim_one(SOURCE)
    (by_hand,) = await sources(store, 1)
    mine, other = await waiting(store, 3, claim.job.id), await waiting(store, 4, by_hand)
    store.operations.unblocked_at_once = 2
    settled = await store.settle(completed(claim), completed(by_hand))
    equal((freed(settled), settled.more), ([*mine[:2], *other], True), "freed")
    equal(ids_of(await store.continue_unblocking(5)), mine[2:], "freed later")


@case
async def a_job_started_meanwhile_sees_the_chain_completed(store: Store) -> None:
    """A job stored between two steps does not wait for the chain. No step counts it down."""
    (source,) = await sources(store, 1)
    (other,) = await sources(store, 1)
    jobs = await waiting(store, 4, source)
    store.operations.unblocked_at_once = 1
    await store.settle(completed(await store.claim_one(SOURCE)))
    (alone,) = await waiting(store, 1, source)
    equal(await store.statuses(alone), ["pending"], "a job that waits for this chain only")
    (also,) = await waiting(store, 1, source, other)
    equal((await store.job(also)).blockers_left, 1, "a job that waits for another chain, too")
    step = await store.continue_unblocking(10)
    equal((ids_of(step), step.more), (jobs[1:], False), "the last step")
    row = await store.job(also)
    equal((row.status, row.blockers_left), ("blocked", 1), "the job behind both")
    equal(freed(await store.finish(other)), [also], "freed by the other chain")


@case
async def a_continuation_stored_with_the_completion(store: Store) -> None:
    """No step counts down a continuation that was stored together with the completion."""
    await sources(store, 1)
    claim = await store.claim_one(SOURCE)
    jobs = await waiting(store, 3, claim.job.id)
    (other,) = await sources(store, 1)
    running = await store.running("continuing")
    following = next_job(running.job, "later", **behind(claim.job.id, other))
    store.operations.unblocked_at_once = 1
    settled = await store.settle(completed(claim), continued(running, following))
    equal((freed(settled), settled.more), (jobs[:1], True), "freed by the completion")
    equal(ids_of(await store.continue_unblocking(10)), jobs[1:], "freed later")
    row = await store.job(following.id)
    equal((row.status, row.blockers_left), ("blocked", 1), "the continuation")


@case
async def jobs_that_wait_no_longer_are_passed(store: Store) -> None:
    """A dependent that was cancelled, taken over or deleted between two steps is left alone."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 6, source)
    await complete(store, at_once=1)
    await store.settle(cancelled(jobs[1]), completed(jobs[2]), end_as("failed", jobs[3]))
    await store.retry(jobs[3])
    await store.delete(jobs[4])
    equal(ids_of(await store.continue_unblocking(10)), [jobs[5]], "freed")
    statuses = ["pending", "cancelled", "completed", "pending", None, "pending"]
    equal(await store.statuses(*jobs), statuses, "statuses")


@case
async def a_job_deleted_and_stored_again(store: Store) -> None:
    """A new job under the id of a deleted dependent is another job: it is not counted down."""
    (source,) = await sources(store, 1)
    (other,) = await sources(store, 1)
    jobs = await waiting(store, 3, source)
    store.operations.unblocked_at_once = 1
    await store.settle(completed(await store.claim_one(SOURCE)))
    await store.delete(jobs[2])
    again: NewJob = new_job(id=jobs[2], **behind(other))
    await store.create(again)
    equal(ids_of(await store.continue_unblocking(10)), [jobs[1]], "freed")
    equal((await store.job(jobs[2])).blockers_left, 1, "blockers_left of the new job")


@case
async def a_freed_job_may_have_to_wait_for_its_time(store: Store) -> None:
    """A job that a step frees before its scheduled time is pending, but not ready."""
    (source,) = await sources(store, 1)
    await waiting(store, 1, source)
    job = await store.start(schedule=When(at=FUTURE), **behind(source))
    await complete(store, at_once=1)
    equal((await store.continue_unblocking(1)).unblocked, [Unblocked(job, "task", ready=False)], "freed")


@driver_case
async def a_step_frees_jobs_as_of_its_own_time(store: Store) -> None:
    """A job that a step frees is due at the time of the step, not of the completion."""
    (source,) = await sources(store, 1)
    _, job = await waiting(store, 2, source)
    await complete(store, at_once=1)
    ended = present((await store.job(source)).completed_at, "completed_at")
    await store.elapse(0.002)
    equal(ids_of(await store.continue_unblocking(1)), [job], "freed")
    check((await store.job(job)).scheduled_at > ended, "it must be due when it is freed")


@case
async def a_step_that_is_rolled_back_did_nothing(store: Store) -> None:
    """The position moves with the transaction, or not at all."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 5, source)
    await complete(store, at_once=1)
    async with store.rolled_back() as tx:
        equal(ids_of(await store.continue_unblocking(2, tx=tx)), jobs[1:3], "freed inside the transaction")
    equal(ids_of(await store.continue_unblocking(2)), jobs[1:3], "freed by the second try")
    equal(ids_of(await store.continue_unblocking(5)), jobs[3:], "freed by the last step")


@case
async def a_completion_that_is_rolled_back_leaves_no_work(store: Store) -> None:
    """Without the completion there is no work item."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 3, source)
    claim = await store.claim_one(SOURCE)
    store.operations.unblocked_at_once = 1
    async with store.rolled_back() as tx:
        settled = await store.settle(completed(claim), tx=tx)
        equal((freed(settled), settled.more), (jobs[:1], True), "freed inside the transaction")
    equal((await store.is_unblocking(), await store.continue_unblocking(5)), (False, Freed([])), "work left")
    equal(set(await store.statuses(*jobs)), {"blocked"}, "statuses")


@case
async def deletion_waits_for_the_last_step(store: Store) -> None:
    """A completed chain cannot be deleted while a job outside is still to be freed."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 3, source)
    await complete(store, at_once=1)
    await store.settle(completed(jobs[0]))
    deleted = await store.delete(source)
    equal({chain: list(by) for chain, by in deleted.waiting.items()}, {source: jobs[1:]}, "waiting")
    equal(ids_of(await store.continue_unblocking(5)), jobs[1:], "freed")


@case
async def deletion_with_all_dependents(store: Store) -> None:
    """With the chain and its dependents, what was left to do is gone, too."""
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 3, source)
    await complete(store, at_once=1)
    deleted = await store.delete(*jobs, cascade=True)
    equal(len(deleted.chains), 4, "deleted chains")
    equal((await store.is_unblocking(), await store.continue_unblocking(5)), (False, Freed([])), "work left")


@case
async def two_workers_at_once(store: Store) -> None:
    """Two transactions never take the same step."""
    other = await store.second()
    (source,) = await sources(store, 1)
    jobs = await waiting(store, 6, source)
    await complete(store, at_once=1)
    async with store.transaction() as tx:
        mine = ids_of(await store.continue_unblocking(2, tx=tx))
        step = store.spawn(other.continue_unblocking(2))
        await settled_soon(step)
    theirs = ids_of(await step)
    rest = ids_of(await store.continue_unblocking(10))
    equal([*mine, *theirs, *rest], jobs[1:], "freed, in this order")
