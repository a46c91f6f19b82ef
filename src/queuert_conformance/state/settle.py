"""settle: how a job ends or is put back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from queuert.base.statuses import Status
from queuert.ports.program import Program
from queuert.ports.state import SettlingLast
from queuert.records.model import Claimed, JobRow, Settled, Settlement
from queuert_conformance.checks import check, equal, present, same_json, skip
from queuert_conformance.state.build import (
    ERROR,
    WORKER,
    cancelled,
    completed,
    continued,
    end_as,
    expired,
    failed,
    given_back,
    later,
    new_id,
    new_job,
    next_job,
    put_back,
    request,
    waiting_for,
)
from queuert_conformance.state.store import Store, case, driver_case

SLACK = timedelta(seconds=20)
ENDINGS: tuple[Status, ...] = ("completed", "failed", "cancelled", "expired")


def no_claim(row: JobRow) -> None:
    """Check that a job that is not running has no claim."""
    equal((row.leased_by, row.leased_until, row.token), (None, None, None), "fields of the claim")


@case
async def completing(store: Store) -> None:
    """A completed job has its output, the time and the worker. Its claim is cleared."""
    claimed = await store.running()
    settled = await store.settle(completed(claimed, b'{"total":3}'))
    equal(settled, Settled(applied=[True], created=[None], unblocked=[]), "answer")
    row = await store.job(claimed.job.id)
    equal((row.status, row.completed_by, row.attempt), ("completed", WORKER, 1), "the job")
    same_json(row.output, b'{"total":3}', "output")
    check(abs(present(row.completed_at, "completed_at") - row.created_at) < SLACK, "completed_at must be now")
    equal((row.continued_to, row.last_error), (None, None), "continuation and error")
    no_claim(row)


@case
async def ending_without_success(store: Store) -> None:
    """A failed or expired job has error, time and worker, and no output. No claim is left."""
    for settlement, status in ((failed, "failed"), (expired, "expired")):
        claimed = await store.running()
        await store.settle(settlement(claimed))
        row = await store.job(claimed.job.id)
        equal((row.status, row.completed_by, row.output), (status, WORKER, None), "the job")
        same_json(row.last_error, ERROR, "last_error")
        check(row.completed_at is not None, "completed_at must be set")
        no_claim(row)


@case
async def cancelling(store: Store) -> None:
    """A cancelled job has the time, and keeps the error of its last attempt."""
    claimed = await store.running()
    await store.settle(put_back(claimed))
    await store.settle(cancelled(claimed.job.id))
    row = await store.job(claimed.job.id)
    equal((row.status, row.completed_by, row.output), ("cancelled", None, None), "the job")
    check(row.completed_at is not None, "completed_at must be set")
    same_json(row.last_error, ERROR, "last_error")


@driver_case
async def completing_clears_the_last_error(store: Store) -> None:
    """A completed job has no error, whichever way it ends: with an output, a next job, by hand."""
    for number, ending in enumerate(("output", "next", "by hand", "in a mixed group")):
        name = f"job {number}"
        first = await store.running(name)
        other = await store.running("other")
        await store.settle(put_back(first))
        again = await store.claim_one(name)
        same_json(again.job.last_error, ERROR, "last_error of the second attempt")
        if ending == "output":
            await store.settle(completed(again, b"1"))
        elif ending == "next":
            await store.settle(continued(again, next_job(again.job, "next")))
        elif ending == "by hand":
            await store.finish(again.job.id)
        else:
            await store.settle(completed(again, b"1"), failed(other))
        row = await store.job(again.job.id)
        equal((row.status, row.attempt, row.last_error), ("completed", 2, None), f"the job, {ending}")


async def _settle_last(store: Store, claimed: Claimed, settlement: Settlement) -> None:
    def program() -> Program[Any]:
        yield present(cast("SettlingLast", store.operations).settle_last(settlement), "the command")

    async with store.holding(claimed) as (tx, held):
        check(held, "the claim must be held")
        await store.driver.run(program(), tx)


@driver_case
async def as_the_last_command(store: Store) -> None:
    """The last command of a transaction stores what settle would have stored."""
    if not hasattr(store.operations, "settle_last"):
        skip("the operations have no settle_last()")
    first = await store.running()
    following = next_job(first.job)
    await _settle_last(store, first, continued(first, following))
    row = await store.job(first.job.id)
    equal((row.status, row.completed_by, row.continued_to), ("completed", WORKER, following.id), "the first job")
    no_claim(row)
    second = await store.claim_one(following.type_name)
    equal(second.job.id, following.id, "the next job")
    await _settle_last(store, second, completed(second, b'{"total":3}'))
    row = await store.job(following.id)
    equal((row.status, row.completed_by, row.continued_to), ("completed", WORKER, None), "the second job")
    same_json(row.output, b'{"total":3}', "output")
    no_claim(row)


@case
async def without_a_token_any_open_job_ends(store: Store) -> None:
    """Without a token, a job that is blocked, pending, scheduled or running can be ended."""
    for status in ENDINGS:
        source = await store.start("source")
        blocked = await store.start(blockers=waiting_for(source, chain_type="source"))
        scheduled = await store.start(schedule=later())
        running = (await store.running("run")).job.id
        pending = await store.start()
        jobs = (blocked, scheduled, running, pending)
        settled = await store.settle(*(end_as(status, job) for job in jobs))
        equal(settled.applied, [True] * 4, "applied")
        equal(await store.statuses(*jobs), [status] * 4, "statuses")
        for row in await store.jobs(*jobs):
            check(row is not None and row.completed_at is not None, "completed_at must be set")
            no_claim(present(row, "the job"))
        await store.finish(source)


@case
async def without_a_token_ended_jobs_stay(store: Store) -> None:
    """Without a token, a job that has ended or does not exist is skipped."""
    for status in ENDINGS:
        job = await store.start()
        await store.settle(end_as(status, job))
        before = await store.job(job)
        for again in ENDINGS:
            settled = await store.settle(end_as(again, job))
            equal((settled.applied, settled.created), ([False], [None]), f"a {status} job, settled as {again}")
        equal(await store.job(job), before, f"the {status} job")
    equal((await store.settle(completed(new_id()))).applied, [False], "an unknown job")


@driver_case
async def all_ways_in_one_call(store: Store) -> None:
    """One call may end jobs in every way. Each is returned in its place."""
    await store.create(*(new_job() for _ in range(7)))
    one, two, three, four, five, six, seven = (await store.claim()).jobs
    following = next_job(two.job, "next")
    settled = await store.settle(
        completed(one, b"1"),
        continued(two, following),
        failed(three),
        put_back(four, schedule=later()),
        cancelled(five),
        given_back(six),
        expired(seven),
        completed(new_id()),
    )
    equal(settled.applied, [True] * 7 + [False], "applied")
    made = [each and each.job_id for each in settled.created]
    equal(made, [None, following.id, *[None] * 6], "created")
    rows = [each.job.id for each in (one, two, three, four, five, six, seven)]
    wanted = ["completed", "completed", "failed", "pending", "cancelled", "pending", "expired"]
    equal(await store.statuses(*rows), wanted, "statuses")
    attempts = [present(row, "row").attempt for row in await store.jobs(four.job.id, six.job.id)]
    equal(attempts, [1, 0], "attempts of those put back and given back")
    equal((await store.job(two.job.id)).continued_to, following.id, "continued_to")


@case
async def lost_ones_do_not_spoil_the_rest(store: Store) -> None:
    """Settlements without a valid claim are skipped. The others of the call take effect."""
    await store.create(*(new_job() for _ in range(3)))
    one, two, three = (await store.claim()).jobs
    await store.settle(put_back(two, schedule=later()))
    settled = await store.settle(completed(one), completed(two), completed(three))
    equal(settled.applied, [True, False, True], "applied")
    wanted = ["completed", "pending", "completed"]
    equal(await store.statuses(one.job.id, two.job.id, three.job.id), wanted, "statuses")


@case
async def several_hundred_in_one_call(store: Store) -> None:
    """A call can settle hundreds of jobs, each with its own output or continuation."""
    await store.create(*(new_job() for _ in range(500)))
    claimed = (await store.claim(request(limit=500))).jobs
    following = [next_job(each.job, "next", input=b"%d" % n) for n, each in enumerate(claimed)]
    items = [continued(each, following[n]) if n % 2 else completed(each, b"%d" % n) for n, each in enumerate(claimed)]
    settled = await store.settle(*items)
    equal(settled.applied, [True] * 500, "applied")
    wanted = [following[n].id if n % 2 else None for n in range(500)]
    equal([each and each.job_id for each in settled.created], wanted, "created")
    rows = await store.jobs(*(each.job.id for each in claimed))
    outputs = [None if n % 2 else b"%d" % n for n in range(500)]
    equal([present(row, "row").output for row in rows], outputs, "outputs")


@case
async def a_rolled_back_settlement_never_was(store: Store) -> None:
    """After a rollback the job is still running, and its token is valid."""
    claimed = await store.running()
    following = next_job(claimed.job)
    async with store.rolled_back() as tx:
        await store.settle(continued(claimed, following), tx=tx)
        equal(await store.statuses(following.id, tx=tx), ["pending"], "inside the transaction")
    equal(await store.jobs(claimed.job.id, following.id), [claimed.job, None], "after the rollback")
    equal((await store.settle(completed(claimed))).applied, [True], "the second try")


@case
async def empty_call(store: Store) -> None:
    """Without settlements, the result is empty."""
    equal(await store.settle(), Settled([], [], []), "answer")
