"""renew: extending leases."""

from __future__ import annotations

from datetime import timedelta

from queuert.records.model import Claimed, Lease
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import completed, new_id, new_job, put_back, queue, request
from queuert_conformance.state.store import Store, case, driver_case

SLACK = timedelta(seconds=20)


def lease(claim: Claimed, duration: float = 600) -> Lease:
    return Lease(claim.job.id, present(claim.job.token, "token"), duration)


async def remaining(store: Store, job_id: str) -> timedelta:
    """From the beginning of the attempt to the end of the lease."""
    row = await store.job(job_id)
    return present(row.leased_until, "leased_until") - present(row.last_attempt_at, "last_attempt_at")


@case
async def leases_are_extended(store: Store) -> None:
    """A renewed lease ends `duration` from now; nothing else changes and nothing is lost."""
    claimed = await store.running()
    equal(await store.renew(lease(claimed, 6000)), [], "lost")
    row = await store.job(claimed.job.id)
    check(abs(await remaining(store, row.id) - timedelta(seconds=6000)) < SLACK, f"leased until {row.leased_until}")
    equal((row.status, row.token, row.attempt), ("running", claimed.job.token, 1), "the job")
    equal(row.leased_by, claimed.job.leased_by, "leased_by")


@case
async def leases_may_become_shorter(store: Store) -> None:
    """The new end is counted from now, even if it is earlier than the old one."""
    claimed = await store.running(lease=6000)
    await store.renew(lease(claimed, 600))
    check(abs(await remaining(store, claimed.job.id) - timedelta(seconds=600)) < SLACK, "600 s must be left")


@case
async def durations_are_each_ones_own(store: Store) -> None:
    """Each claim of a call is renewed for its own duration."""
    await store.create(new_job(), new_job(), new_job())
    claimed = (await store.claim()).jobs
    wanted = [300.0, 3000.0, 30_000.0]
    items = [lease(each, duration) for each, duration in zip(claimed, wanted, strict=True)]
    equal(await store.renew(*reversed(items)), [], "lost")
    for each, duration in zip(claimed, wanted, strict=True):
        left = await remaining(store, each.job.id)
        check(abs(left - timedelta(seconds=duration)) < SLACK, f"{duration} s must be left, there are {left}")


@case
async def a_renewed_lease_is_not_reaped(store: Store) -> None:
    """A renewed lease does not expire, even if it is renewed at the last moment."""
    claimed = await store.running(lease=0.2)
    await store.elapse(0.3)
    equal(await store.renew(lease(claimed)), [], "lost, with an expired lease that was not reaped")
    equal(await store.reap("task"), [], "reaped")
    equal((await store.settle(completed(claimed))).applied, [True], "applied")


@driver_case
async def lost_claims_are_named(store: Store) -> None:
    """Claims that are no longer valid are returned as lost, unchanged. Others are renewed."""
    await store.create(*(new_job() for _ in range(5)))
    kept, back, done, gone, wrong = (await store.claim()).jobs
    await store.settle(put_back(back), completed(done))
    await store.delete(gone.job.chain_id)
    forged = Lease(wrong.job.id, present(wrong.job.token, "token") + 1_000_000, 600)
    unknown = Lease(new_id(), 1, 600)
    lost = await store.renew(lease(back), lease(kept), lease(done), unknown, lease(gone), forged)
    wanted = [back.job.id, done.job.id, unknown.job_id, gone.job.id, wrong.job.id]
    equal(sorted(lost), sorted(wanted), "lost")
    check(await remaining(store, kept.job.id) > timedelta(seconds=500), "the valid claim must be renewed")
    equal(await store.job(wrong.job.id), wrong.job, "the job with another token")


@case
async def an_earlier_claim_of_the_same_job(store: Store) -> None:
    """An old token is lost even if the job runs again, and the lease of that job is not changed."""
    first = await store.running()
    await store.settle(put_back(first))
    second = await store.claim_one()
    equal(await store.renew(lease(first, 9000)), [first.job.id], "lost")
    equal(await store.job(first.job.id), second.job, "the running job")


@case
async def several_hundred_in_one_call(store: Store) -> None:
    """A call can renew hundreds of claims."""
    await store.create(*(new_job() for _ in range(500)))
    claimed = (await store.claim(request(queue("task", lease=0), limit=500))).jobs
    equal(await store.renew(*(lease(each) for each in claimed)), [], "lost")
    equal(await store.reap("task", limit=500), [], "reaped")


@case
async def empty_call(store: Store) -> None:
    """Without leases, the result is empty."""
    equal(await store.renew(), [], "lost")
