"""claim: which jobs are taken, and how they change."""

from __future__ import annotations

from datetime import timedelta

from queuert.records.model import BlockerRef, ClaimRequest, ClaimResult, TypeLimit, When
from queuert_conformance.checks import check, equal, only, present, same_json
from queuert_conformance.state.build import (
    FUTURE,
    LEASE,
    PAST,
    completed,
    end_as,
    failed,
    given_back,
    later,
    new_job,
    put_back,
    queue,
    request,
    rescheduled,
    waiting_for,
)
from queuert_conformance.state.dedup import ENDINGS
from queuert_conformance.state.store import Store, case, driver_case

SLACK = timedelta(seconds=20)


def ids(result: ClaimResult) -> list[str]:
    return [each.job.id for each in result.jobs]


def nothing(result: ClaimResult, what: str) -> None:
    """Check that the claim is empty and reports no more jobs."""
    equal((result.jobs, result.more), ([], False), what)


@case
async def a_claimed_job_runs(store: Store) -> None:
    """A claimed job is running: one more attempt, the lease of its type, a token."""
    job = await store.start(trace_context="00-a")
    before = await store.job(job)
    await store.elapse(0.002)
    result = await store.claim(request(queue("task", lease=600), worker="me"))
    claimed = only(result.jobs, "claimed jobs")
    row = claimed.job
    equal((row.id, row.status, row.attempt, row.leased_by), (job, "running", 1, "me"), "the job")
    check(row.token is not None, "a claim must have a token")
    began = present(row.last_attempt_at, "last_attempt_at")
    check(abs(began - row.created_at) < SLACK, "last_attempt_at must be now")
    lease = present(row.leased_until, "leased_until") - began
    check(abs(lease - timedelta(seconds=600)) < SLACK, f"the lease must be 600 s long, is {lease}")
    equal((row.scheduled_at, row.trace_context), (before.scheduled_at, "00-a"), "what stays")
    equal((claimed.expired, claimed.blockers, result.more), (False, (), False), "the rest of the result")


@driver_case
async def a_claim_tells_of_earlier_runs(store: Store) -> None:
    """A job has run before if an earlier run failed, was not counted, or lost its worker."""
    job = await store.running(lease=0.001)
    check(not job.ran_before, "a new job has not run before")
    await store.settle(rescheduled(job))
    again = await store.claim_one(lease=0.001)
    equal((again.ran_before, again.job.attempt), (True, 1), "after an uncounted run")
    await store.settle(put_back(again))
    third = await store.claim_one(lease=0.001)
    equal((third.ran_before, third.job.attempt), (True, 2), "after a failed attempt")
    await store.elapse(0.05)
    await store.reap("task")
    check((await store.claim_one()).ran_before, "after the end of its lease")


@case
async def a_retried_job_has_run_before(store: Store) -> None:
    """retry counts attempts from zero, but the job has run."""
    claimed = await store.running()
    await store.settle(failed(claimed))
    await store.retry(claimed.job.id)
    again = await store.claim_one()
    equal((again.ran_before, again.job.attempt), (True, 1), "after retry")


@case
async def the_answer_is_the_stored_row(store: Store) -> None:
    """The row that a claim returns is the stored row."""
    claimed = await store.running(priority=3, deadline=later())
    equal(await store.job(claimed.job.id), claimed.job, "the stored row")


@case
async def a_job_is_claimed_once(store: Store) -> None:
    """A running job is not claimed again."""
    job = await store.start()
    equal(ids(await store.claim()), [job], "first claim")
    nothing(await store.claim(), "second claim")


@driver_case
async def only_ready_jobs_are_claimed(store: Store) -> None:
    """Jobs that are blocked, scheduled for later, running or ended are not claimed."""
    source = await store.start("source")
    await store.running()
    for status in ENDINGS:
        await store.settle(end_as(status, await store.start()))
    await store.create(
        new_job(schedule=later()),
        new_job(schedule=When(at=FUTURE)),
        new_job(blockers=waiting_for(source, chain_type="source")),
    )
    nothing(await store.claim(), "the claim")


@case
async def only_the_requested_types_are_claimed(store: Store) -> None:
    """Jobs of other types are not changed and do not count as more."""
    wanted, other = await store.start("wanted"), await store.start("other", priority=-1)
    nothing(await store.claim(request(queue("missing"))), "a type without jobs")
    result = await store.claim(request(queue("wanted", "missing"), limit=1))
    equal((ids(result), result.more), ([wanted], False), "the claim")
    equal(await store.statuses(other), ["pending"], "the other job")


@case
async def leases_are_by_type(store: Store) -> None:
    """Each type has its own lease."""
    await store.create(new_job("short"), new_job("long"))
    result = await store.claim(request(queue(TypeLimit("short", 9, 60), TypeLimit("long", 9, 6000))))
    ends = {each.job.type_name: present(each.job.leased_until, "leased_until") for each in result.jobs}
    check(abs(ends["long"] - ends["short"] - timedelta(seconds=5940)) < SLACK, f"leases expire at {ends}")


@case
async def attempts_count_every_claim(store: Store) -> None:
    """Every claim is one more attempt, and gets a token that was never used before."""
    await store.start()
    tokens: list[int] = []
    for number in range(1, 6):
        claimed = await store.claim_one()
        equal(claimed.job.attempt, number, "attempt")
        tokens.append(present(claimed.job.token, "token"))
        await store.settle(put_back(claimed))
    equal(len(set(tokens)), len(tokens), "different tokens")


@case
async def tokens_are_unique_across_jobs(store: Store) -> None:
    """No two claims share a token, in one call or in several."""
    await store.create(*(new_job() for _ in range(30)))
    tokens = [each.job.token for _ in range(3) for each in (await store.claim(request(limit=10))).jobs]
    equal(len(set(tokens)), 30, "different tokens")


@case
async def tokens_survive_deletion(store: Store) -> None:
    """No token comes again, even if the jobs that had them are deleted."""
    before = await store.running()
    await store.delete(before.job.chain_id)
    after = await store.running()
    check(present(after.job.token, "token") != present(before.job.token, "token"), "tokens must differ")


@case
async def an_attempt_given_back_gets_a_new_token(store: Store) -> None:
    """A job given back untouched gets the same attempt number again, but another token."""
    first = await store.running()
    await store.settle(given_back(first))
    second = await store.claim_one()
    equal(second.job.attempt, first.job.attempt, "attempt")
    check(second.job.token != first.job.token, "the token must not repeat")


@case
async def past_deadlines_are_marked(store: Store) -> None:
    """A job past its deadline is claimed and marked expired. Other jobs are not marked."""
    late = await store.start(deadline=When(at=PAST))
    await store.start(deadline=When(at=FUTURE))
    await store.start(deadline=later())
    await store.start()
    result = await store.claim()
    equal(len(result.jobs), 4, "claimed jobs")
    equal([each.job.id for each in result.jobs if each.expired], [late], "expired jobs")
    row = await store.job(late)
    equal((row.status, row.attempt), ("running", 1), "the expired job")


@case
async def a_deadline_passes(store: Store) -> None:
    """Whether a deadline has passed is decided at the claim, by the database's clock."""
    await store.start(deadline=When(after=0.2))
    await store.elapse(0.3)
    check((await store.claim_one()).expired, "the job must be marked as expired")


@driver_case
async def blockers_come_with_the_job(store: Store) -> None:
    """A claimed job is returned with its blockers, in the order given, with outputs."""
    first, second = await store.start("source"), await store.start("source")
    refs = (BlockerRef(second, "source", "00-b"), BlockerRef(first, "source"))
    job = await store.start(blockers=refs)
    free = await store.start(priority=200)
    await store.settle(completed(first, b'{"n":1}'), completed(second, b"null"))
    claimed = (await store.claim()).jobs
    equal([each.job.id for each in claimed], [job, free], "claimed jobs")
    blockers = claimed[0].blockers
    equal([b.chain_id for b in blockers], [second, first], "blockers")
    equal([(b.chain_type, b.status) for b in blockers], [("source", "completed")] * 2, "types and statuses")
    equal((blockers[0].output, blockers[0].trace_context), (b"null", "00-b"), "the first blocker")
    same_json(blockers[1].output, b'{"n":1}', "output of the second blocker")
    equal(claimed[1].blockers, (), "blockers of the other job")


@case
async def a_rolled_back_claim_never_was(store: Store) -> None:
    """After the rollback of a claim the job is pending, with its attempts and without a lease."""
    job = await store.start()
    before = await store.job(job)
    async with store.rolled_back() as tx:
        equal(ids(await store.claim(tx=tx)), [job], "claimed inside the transaction")
    equal(await store.job(job), before, "the job")
    equal((await store.claim_one()).job.attempt, 1, "attempt of the next claim")


@driver_case
async def several_hundred_at_once(store: Store) -> None:
    """A claim can take hundreds of jobs. Each is running afterwards."""
    jobs = [new_job() for _ in range(700)]
    await store.create(*jobs)
    result = await store.claim(request(limit=500))
    equal(ids(result), [job.id for job in jobs[:500]], "claimed jobs")
    check(result.more, "more must be waiting")
    rest = await store.claim(request(limit=500))
    equal((ids(rest), rest.more), ([job.id for job in jobs[500:]], False), "the rest")


@case
async def empty_requests(store: Store) -> None:
    """A claim without queues, without types or with a limit of 0 takes nothing."""
    await store.start()
    nothing(await store.claim(ClaimRequest("worker", 10, ())), "no queues")
    nothing(await store.claim(request(queue())), "a queue without types")
    equal((await store.claim(request(limit=0))).jobs, [], "a limit of 0")
    equal(len((await store.claim(request(queue("task", lease=LEASE)))).jobs), 1, "a real claim afterwards")
