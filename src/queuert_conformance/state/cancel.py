"""cancel_chains: open chains are cancelled; with cascade, those that wait for them too."""

from __future__ import annotations

from queuert.records.model import Cancelled
from queuert_conformance.checks import check, equal, present, same_json
from queuert_conformance.state.build import (
    ERROR,
    completed,
    continued,
    end_as,
    failed,
    later,
    new_id,
    new_ids,
    new_job,
    next_job,
    put_back,
    waiting_for,
)
from queuert_conformance.state.concurrency import expect_waiting
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case
from queuert_conformance.state.unblock import behind, sources


def stopped(cancelled: Cancelled) -> list[str]:
    """The ids of the cancelled chains, in the order of the answer."""
    return [chain.first.id for chain in cancelled.chains]


@case
async def open_chains_are_cancelled(store: Store) -> None:
    """Pending, running and blocked chains are cancelled, and returned as they are now."""
    claimed = await store.running()
    pending = await store.start("other", schedule=later())
    blocked = await store.start("other", blockers=waiting_for(pending, chain_type="other"))
    cancelled = await store.cancel(blocked, claimed.job.id, pending)
    equal(stopped(cancelled), [blocked, claimed.job.id, pending], "cancelled chains")
    equal(cancelled.running, frozenset({claimed.job.id}), "jobs that were running")
    equal(cancelled.missing, (), "missing chains")
    equal(cancelled.chains, [await store.chain(each) for each in stopped(cancelled)], "the returned rows")
    for chain in cancelled.chains:
        row = chain.current
        equal((row.status, row.completed_by, row.output), ("cancelled", None, None), "the job")
        equal((row.leased_by, row.leased_until, row.token), (None, None, None), "its claim")
        check(row.completed_at is not None and row.completed_at >= row.created_at, "it has the time of its end")
    equal((await store.claim()).jobs, [], "what can be claimed")


@case
async def a_running_job_keeps_its_attempt(store: Store) -> None:
    """The attempt of a running job counts, its last error stays, and its claim is lost."""
    claimed = await store.running()
    await store.settle(put_back(claimed))
    again = await store.claim_one()
    await store.cancel(again.job.id)
    row = await store.job(again.job.id)
    equal((row.attempt, row.last_attempt_at), (2, again.job.last_attempt_at), "attempts")
    same_json(present(row.last_error, "last_error"), ERROR, "last_error")
    equal((await store.settle(completed(again))).applied, [False], "the claim's settlement")


@case
async def a_chain_that_went_on(store: Store) -> None:
    """The current job of a chain is cancelled. The jobs before it stay as they are."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    (chain,) = (await store.cancel(claimed.job.id)).chains
    equal(
        (chain.first.status, chain.current.id, chain.current.status), ("completed", following.id, "cancelled"), "chain"
    )


@case
async def ended_chains_are_skipped(store: Store) -> None:
    """Chains that have ended are neither changed nor returned."""
    ids = [await store.start() for _ in ENDINGS]
    await store.settle(*(end_as(status, each) for status, each in zip(ENDINGS, ids, strict=True)))
    before = await store.jobs(*ids)
    equal(await store.cancel(*ids, cascade=True), Cancelled([]), "answer")
    equal(await store.jobs(*ids), before, "jobs")


@case
async def a_missing_chain_changes_nothing(store: Store) -> None:
    """If a chain does not exist, nothing is cancelled, and the answer names it."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    unknown = new_id()
    for cascade in (False, True):
        answer = await store.cancel(claimed.job.id, unknown, following.id, cascade=cascade)
        equal(answer, Cancelled([], missing=(unknown, following.id)), "answer")
    equal(await store.statuses(following.id), ["pending"], "the chain that exists")


@case
async def nothing_to_cancel(store: Store) -> None:
    """Without ids there is nothing to do, and a chain that is named twice is cancelled once."""
    equal(await store.cancel(cascade=True), Cancelled([]), "answer without ids")
    job = await store.start()
    equal(stopped(await store.cancel(job, job)), [job], "answer")


@case
async def without_cascade_dependents_stay_blocked(store: Store) -> None:
    """Without cascade only the named chains are cancelled."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    equal(stopped(await store.cancel(source)), [source], "cancelled")
    equal(await store.statuses(job), ["blocked"], "the dependent")


@driver_case
async def a_cascade_goes_upward_at_every_depth(store: Store) -> None:
    """With cascade those that wait are cancelled too: the named ones first, the others by id."""
    (source, other) = await sources(store, 2)
    last_id, middle_id = new_ids(2)
    middle = await store.start("middle", id=middle_id, **behind(source))
    last = await store.start(id=last_id, blockers=waiting_for(middle, chain_type="middle"))
    beside = await store.start(**behind(other))
    equal(stopped(await store.cancel(source, cascade=True)), [source, last, middle], "cancelled")
    equal(await store.statuses(other, beside), ["pending", "blocked"], "what does not wait for it")


@case
async def a_cascade_does_not_go_downward(store: Store) -> None:
    """The chains that a cancelled chain waited for are not cancelled."""
    first, second = await sources(store, 2)
    job = await store.start(**behind(first, second))
    equal(stopped(await store.cancel(first, cascade=True)), [first, job], "cancelled")
    equal(await store.statuses(second), ["pending"], "the other blocker")


@case
async def a_cascade_from_an_ended_chain(store: Store) -> None:
    """With cascade the jobs that wait in vain for a failed chain are cancelled."""
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    await store.settle(failed(source))
    equal(stopped(await store.cancel(source, cascade=True)), [job], "cancelled")
    equal(await store.statuses(source), ["failed"], "the chain that had ended")


@case
async def only_blocked_jobs_are_followed(store: Store) -> None:
    """A dependent that is no longer blocked is not cancelled, nor is what waits for it."""
    (source,) = await sources(store, 1)
    free = await store.start("middle", **behind(source))
    above = await store.start(blockers=waiting_for(free, chain_type="middle"))
    await store.finish(source)
    equal(await store.cancel(source, cascade=True), Cancelled([]), "answer")
    equal(await store.statuses(free, above), ["pending", "blocked"], "the dependents")


@case
async def a_blocked_job_later_in_its_chain(store: Store) -> None:
    """A cascade cancels a chain whose current job waits, though its first job is not blocked."""
    (source,) = await sources(store, 1)
    claimed = await store.running()
    following = next_job(claimed.job, **behind(source))
    await store.settle(continued(claimed, following))
    equal(stopped(await store.cancel(source, cascade=True)), [source, claimed.job.id], "cancelled")
    equal(await store.statuses(following.id), ["cancelled"], "its current job")


@case
async def a_diamond_is_cancelled_as_a_whole(store: Store) -> None:
    """A chain that waits in two ways is cancelled once."""
    (source,) = await sources(store, 1)
    left, right = await store.start("middle", **behind(source)), await store.start("middle", **behind(source))
    last = await store.start(blockers=waiting_for(left, right, chain_type="middle"))
    equal(stopped(await store.cancel(source, cascade=True)), [source, left, right, last], "cancelled")


@case
async def many_dependents(store: Store) -> None:
    """A cascade follows a line of fifty chains, and takes a thousand that wait for one."""
    (source,) = await sources(store, 1)
    line = [new_job("line", **behind(source))]
    for _ in range(49):
        line.append(new_job("line", blockers=waiting_for(line[-1].id, chain_type="line")))
    wide = [new_job(blockers=waiting_for(line[-1].id, chain_type="line")) for _ in range(1000)]
    await store.create(*line, *wide)
    cancelled = await store.cancel(source, cascade=True)
    equal(len(cancelled.chains), 1051, "cancelled chains")
    equal({chain.current.status for chain in cancelled.chains}, {"cancelled"}, "their statuses")


@case
async def a_start_behind_it_is_seen(store: Store) -> None:
    """A cascade waits for an uncommitted start behind one of its chains, and cancels that too."""
    other = await store.second()
    (source,) = await sources(store, 1)
    async with store.transaction() as tx:
        job = await store.start(tx=tx, **behind(source))
        cancelling = store.spawn(other.cancel(source, cascade=True))
        await expect_waiting(cancelling, "the cancellation")
    equal(stopped(await cancelling), [source, job], "cancelled")


@case
async def a_completion_comes_first(store: Store) -> None:
    """A cascade waits for an uncommitted completion, and leaves alone what that has freed."""
    other = await store.second()
    (source,) = await sources(store, 1)
    job = await store.start(**behind(source))
    async with store.transaction() as tx:
        await store.finish(source, tx=tx)
        cancelling = store.spawn(other.cancel(source, cascade=True))
        await expect_waiting(cancelling, "the cancellation")
    equal(await cancelling, Cancelled([]), "answer")
    equal(await store.statuses(source, job), ["completed", "pending"], "jobs")
