"""Fencing: a late worker cannot change a job that it has lost."""

from __future__ import annotations

from msgspec.structs import replace

from queuert.records.model import Claimed, Lease, Settlement
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import (
    WORKER,
    completed,
    continued,
    end_as,
    failed,
    given_back,
    new_id,
    new_job,
    next_job,
    put_back,
    queue,
    request,
    rescheduled,
)
from queuert_conformance.state.settle import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case


def every_way(claim: Claimed) -> list[Settlement]:
    """A settlement of each kind, with the token of this claim."""
    following = next_job(claim.job)
    endings = [end_as(status, claim) for status in ENDINGS]
    return [*endings, continued(claim, following), put_back(claim), given_back(claim)]


async def refused(store: Store, claim: Claimed, when: str) -> None:
    """Check that no operation with this claim has an effect."""
    before = await store.jobs(claim.job.id)
    for settlement in every_way(claim):
        settled = await store.settle(settlement)
        equal((settled.applied, settled.created, settled.unblocked), ([False], [None], []), f"settled {when}")
        if settlement.continuation is not None:
            equal(await store.jobs(settlement.continuation.id), [None], f"continuation {when}")
    lease = Lease(claim.job.id, present(claim.job.token, "token"), 600)
    equal(await store.renew(lease), [claim.job.id], f"lost leases {when}")
    async with store.transaction() as tx:
        check(not await store.hold(claim, tx=tx), f"the claim cannot be held {when}")
    equal(await store.jobs(claim.job.id), before, f"the job {when}")


@case
async def a_wrong_token(store: Store) -> None:
    """A token of another job or attempt has no effect."""
    claimed = await store.running()
    wrong = present(claimed.job.token, "token") + 1_000_000
    forged = Settlement(job_id=claimed.job.id, token=wrong, status="completed", output=b"1", worker=WORKER)
    equal((await store.settle(forged)).applied, [False], "applied")
    equal(await store.job(claimed.job.id), claimed.job, "the job")


@driver_case
async def a_claim_is_held(store: Store) -> None:
    """Holding a claim changes nothing, and may be repeated. An unknown job cannot be held."""
    claimed = await store.running()
    async with store.transaction() as tx:
        equal([await store.hold(claimed, tx=tx) for _ in range(2)], [True, True], "applied")
        unknown = replace(claimed, job=replace(claimed.job, id=new_id()))
        check(not await store.hold(unknown, tx=tx), "an unknown job cannot be held")
    equal(await store.job(claimed.job.id), claimed.job, "the job")
    equal((await store.settle(completed(claimed))).applied, [True], "held, afterwards")


@case
async def the_token_of_another_job(store: Store) -> None:
    """A valid token of one job is not valid for another."""
    await store.create(new_job(), new_job())
    one, two = (await store.claim()).jobs
    forged = Settlement(job_id=one.job.id, token=two.job.token, status="failed")
    equal((await store.settle(forged)).applied, [False], "applied")
    equal(await store.statuses(one.job.id, two.job.id), ["running", "running"], "statuses")


@case
async def a_job_that_was_never_claimed(store: Store) -> None:
    """A token has no effect on a job that is pending."""
    claimed = await store.running()
    job = await store.start()
    forged = Settlement(job_id=job, token=claimed.job.token, status="completed", output=b"1")
    equal((await store.settle(forged)).applied, [False], "applied")
    equal(await store.statuses(job), ["pending"], "the job")


@case
async def after_a_reclaim(store: Store) -> None:
    """The token of an earlier attempt has no effect in a later one, even of the same worker."""
    first = await store.running()
    await store.settle(put_back(first))
    await refused(store, first, "while pending")
    second = await store.claim_one()
    await refused(store, first, "while running again")
    equal((await store.settle(completed(second))).applied, [True], "held by the second claim")


@case
async def after_giving_back(store: Store) -> None:
    """An attempt number that was given back and used again does not make the old token valid."""
    first = await store.running()
    await store.settle(given_back(first))
    second = await store.claim_one()
    equal(second.job.attempt, first.job.attempt, "attempt")
    await refused(store, first, "after the attempt number was used again")


@case
async def after_reaping(store: Store) -> None:
    """After a reaping the old token has no effect, before and after the next claim."""
    first = await store.running(lease=0)
    await store.reap("task")
    await refused(store, first, "after the reaping")
    second = await store.claim_one()
    await refused(store, first, "after the next claim")
    equal((await store.settle(failed(second))).applied, [True], "held by the second claim")


@case
async def after_a_rollback(store: Store) -> None:
    """The token of a claim that was rolled back is not used again. It has no effect."""
    await store.start()
    async with store.rolled_back() as tx:
        never = await store.claim_one(tx=tx)
    await refused(store, never, "after the rollback")
    claimed = await store.claim_one()
    await refused(store, never, "after the next claim")
    equal((await store.settle(completed(claimed))).applied, [True], "held by the next claim")


@case
async def after_the_end(store: Store) -> None:
    """A token has no effect on a job that has ended in any way."""
    for status in ENDINGS:
        claimed = await store.running()
        await store.settle(end_as(status, claimed))
        await refused(store, claimed, f"after it was {status}")


@case
async def after_a_retry(store: Store) -> None:
    """The token of the attempt that failed has no effect on the retried job."""
    claimed = await store.running()
    await store.settle(failed(claimed))
    await store.retry(claimed.job.id)
    await refused(store, claimed, "after the retry")


@case
async def after_someone_ended_it_without_a_token(store: Store) -> None:
    """A job that was cancelled or taken over while it ran is lost to its worker."""
    claimed = await store.running()
    following = next_job(claimed.job, "next")
    equal((await store.settle(continued(claimed.job.id, following))).applied, [True], "taken over")
    await refused(store, claimed, "after it was taken over")
    equal(await store.statuses(following.id), ["pending"], "the continuation")


@case
async def tokens_are_the_caller_s(store: Store) -> None:
    """The jobs of a claim have its token and the numbers after it, in their order, up to 2^62."""
    await store.create(*(new_job(name, priority=priority) for name in ("a", "b") for priority in (2, 1)))
    for first in (2**62 - 1, 1):
        for claim in (queue("a", "b"), queue("a", "b", max_concurrency=9), queue("a"), queue("b", limit=3)):
            wanted = request(claim, first_token=first)
            claimed = (await store.driver.run(store.operations.claim(wanted))).jobs
            equal([each.job.token for each in claimed], [first + place for place in range(len(claimed))], "tokens")
            equal(await store.jobs(*(each.job.id for each in claimed)), [each.job for each in claimed], "stored")
            for each in claimed:
                token = present(each.job.token, "token")
                equal(await store.renew(Lease(each.job.id, token, 600)), [], "lost leases")
                async with store.transaction() as tx:
                    check(await store.hold(each, tx=tx), "the claim is held")
            settled = await store.settle(*(given_back(each) for each in claimed))
            equal(settled.applied, [True] * len(claimed), "settled")


@case
async def a_later_claim_with_a_lower_token(store: Store) -> None:
    """Tokens have no order: a claim with a lower token than an earlier one is as valid."""
    job = await store.start()
    for first in (1000, 10):
        (early,) = (await store.driver.run(store.operations.claim(request(first_token=first)))).jobs
        await store.settle(put_back(early))
        (late,) = (await store.driver.run(store.operations.claim(request(first_token=first - 5)))).jobs
        await refused(store, early, "after a claim with a lower token")
        equal((await store.settle(rescheduled(late))).applied, [True], "held by the later claim")
    equal(await store.statuses(job), ["pending"], "the job")


@case
async def after_deletion(store: Store) -> None:
    """A deleted job is lost to its worker, and stays deleted."""
    claimed = await store.running()
    await store.delete(claimed.job.chain_id)
    await refused(store, claimed, "after the deletion")
    equal(await store.jobs(claimed.job.id), [None], "the job")


@case
async def twice_in_one_call(store: Store) -> None:
    """Of two settlements of one claim in one call, the first takes effect."""
    claimed = await store.running()
    settled = await store.settle(completed(claimed, b"1"), failed(claimed))
    equal(settled.applied, [True, False], "applied")
    row = await store.job(claimed.job.id)
    equal((row.status, row.output, row.last_error), ("completed", b"1", None), "the job")


@case
async def put_back_and_ended_in_one_call(store: Store) -> None:
    """A claim that was put back by a settlement has ended for the rest of the call."""
    claimed = await store.running()
    settled = await store.settle(put_back(claimed), completed(claimed), given_back(claimed))
    equal(settled.applied, [True, False, False], "applied")
    row = await store.job(claimed.job.id)
    equal((row.status, row.attempt), ("pending", 1), "the job")


@case
async def ended_twice_without_a_token(store: Store) -> None:
    """Without tokens, too, a job ends once in a call, and one continuation is stored."""
    job = await store.start()
    row = await store.job(job)
    one, two = next_job(row), next_job(row)
    settled = await store.settle(continued(job, one), continued(job, two))
    equal(settled.applied, [True, False], "applied")
    equal(await store.statuses(one.id, two.id), ["pending", None], "continuations")


@case
async def an_unknown_job(store: Store) -> None:
    """A settlement of a job that does not exist is skipped, with and without a token."""
    unknown = new_id()
    with_token = Settlement(job_id=unknown, token=1, status="completed", output=b"1")
    settled = await store.settle(with_token, completed(unknown))
    equal((settled.applied, settled.created), ([False, False], [None, None]), "answer")
