"""reap, claim, begin_alone: jobs whose workers are lost again and again."""

from __future__ import annotations

from queuert.records.model import ALONE_AFTER, NOT_BEGUN, Claimed, JobRow
from queuert_conformance.checks import check, equal, only, present
from queuert_conformance.state.build import ERROR, completed, failed, new_job, put_back, queue, request
from queuert_conformance.state.limits import declare, job, take
from queuert_conformance.state.store import Store, case, driver_case


async def lost(store: Store, *, alone: bool = False, **delays: tuple[float, ...]) -> JobRow:
    """Claim the only job, and lose it with its worker."""
    claimed = await store.claim_one(lease=0)
    if alone:
        check(await store.begin_alone(claimed), "the claim is valid")
    await store.elapse(0.002)
    return only(await store.reap("task", delays=delays), "reaped jobs")


async def lost_often(store: Store) -> JobRow:
    """A job that runs alone from now on."""
    row = await store.job(await store.start())
    for _ in range(ALONE_AFTER):
        row = await lost(store)
    return row


@driver_case
async def losses_are_counted(store: Store) -> None:
    """A lost attempt counts as an attempt and as a loss, a failed one only as an attempt."""
    claimed = await store.running()
    await store.settle(put_back(claimed))
    row = await lost(store)
    equal((row.attempt, row.losses), (2, 1), "attempts and losses")
    again = await store.claim_one()
    equal((again.job.attempt, again.job.losses, again.ordinal), (3, 1, None), "the next claim")
    equal((await store.job(row.id)).losses, 1, "the stored row")
    await store.settle(completed(again))
    equal((await store.job(row.id)).losses, 1, "the completed job")


@driver_case
async def a_delay_for_each_loss(store: Store) -> None:
    """A lost job waits as its delays say. The last one is for all later losses; 0 is as before."""
    first = await store.job(await store.start())
    one = await lost(store, task=(0.0, 60.0), other=(30.0,))
    equal((one.losses, one.scheduled_at), (1, first.scheduled_at), "after the first loss")
    two = await lost(store, task=(0.0, 60.0), other=(30.0,))
    equal(two.losses, 2, "losses")
    check((two.scheduled_at - first.scheduled_at).total_seconds() >= 60, f"due at {two.scheduled_at}")
    equal((await store.claim()).jobs, [], "claimed before that")
    await store.trigger(two.id)
    three = await lost(store, alone=True, task=(0.0, 60.0))
    check(three.scheduled_at > two.scheduled_at, "the last delay is for all later losses")


@case
async def delays_of_other_types(store: Store) -> None:
    """Without a delay for its type, a lost job is due as before."""
    first = await store.job(await store.start())
    equal((await lost(store, other=(30.0,))).scheduled_at, first.scheduled_at, "without one")
    equal((await lost(store, task=())).scheduled_at, first.scheduled_at, "with an empty one")


@driver_case
async def a_job_that_was_lost_often_has_not_begun(store: Store) -> None:
    """It is put back untouched, whatever its worker, until `begin_alone`."""
    before = await lost_often(store)
    claimed = await store.claim_one(lease=0)
    equal((claimed.ordinal, claimed.job.losses), (NOT_BEGUN, ALONE_AFTER), "the claim")
    await store.elapse(0.002)
    equal(await store.reap("task", delays={"task": (60.0,)}), [before], "reaped")
    await store.register("worker-1", horizon=1000)
    await store.claim_one(lease=0)
    await store.elapse(0.002)
    equal(await store.reap("task"), [before], "reaped with a horizon")
    after = await lost(store, alone=True)
    equal((after.attempt, after.losses), (before.attempt + 1, ALONE_AFTER + 1), "after it began")


@driver_case
async def only_the_claim_begins_alone(store: Store) -> None:
    """A claim that is over cannot begin."""
    await lost_often(store)
    old = await store.claim_one(lease=0)
    await store.elapse(0.002)
    await store.reap("task")
    new = await store.claim_one(lease=0)
    check(not await store.begin_alone(old), "the claim is over")
    await store.elapse(0.002)
    equal([row.losses for row in await store.reap("task")], [ALONE_AFTER], "losses of the new claim")
    check(not await store.begin_alone(new), "the claim is over")


@case
async def it_is_settled_like_any_other(store: Store) -> None:
    """A job that was lost often can be given back, put back and completed."""
    row = await lost_often(store)
    for settlement in (put_back, completed):
        claimed = await store.claim_one()
        equal(claimed.ordinal, NOT_BEGUN, "ordinal")
        check(await store.begin_alone(claimed), "the claim is valid")
        equal((await store.settle(settlement(claimed))).applied, [True], "applied")
        equal((await store.job(row.id)).losses, ALONE_AFTER, "losses")


@case
async def beside_others(store: Store) -> None:
    """In a claim with others, only the job that was lost often has not begun."""
    row = await lost_often(store)
    await store.create(new_job(), new_job(), new_job())
    jobs = (await store.claim(request(queue("task"), at_once=2, first_ordinal=10))).jobs
    equal([(each.job.id == row.id, each.ordinal) for each in jobs], [
        (True, NOT_BEGUN), (False, None), (False, 12), (False, 13)
    ], "ordinals")  # fmt: skip


@case
async def with_a_limit(store: Store) -> None:
    """The same is true for a job with a limit."""
    await declare(store, 5)
    await store.create(job())

    async def lose() -> tuple[Claimed, JobRow]:
        claimed = only((await take(store, lease=0)).jobs, "claimed jobs")
        await store.elapse(0.002)
        return claimed, only(await store.reap("task"), "reaped jobs")

    claimed, row = await lose()
    for _ in range(ALONE_AFTER - 1):
        equal(claimed.ordinal, None, "ordinal")
        claimed, row = await lose()
    equal(claimed.ordinal, None, "ordinal")
    claimed, again = await lose()
    equal((claimed.ordinal, claimed.job.losses), (NOT_BEGUN, ALONE_AFTER), "the claim")
    equal(again, row, "reaped")


@driver_case
async def new_attempts_have_no_losses(store: Store) -> None:
    """`retry` and `repair` give new attempts, without the losses."""
    await lost_often(store)
    claimed = await store.claim_one()
    await store.settle(failed(claimed))
    equal((await store.job(claimed.job.id)).losses, ALONE_AFTER, "of the failed job")
    (retried,) = await store.retry(claimed.job.id)
    row = present(retried, "the retried job")
    equal((row.attempt, row.losses), (0, 0), "after retry")
    for _ in range(ALONE_AFTER):
        row = await lost(store)
    await store.settle(failed(await store.claim_one()))
    repaired = await store.repair(row.id, ERROR)
    equal(repaired and (repaired.attempt, repaired.losses), (0, 0), "after repair")
