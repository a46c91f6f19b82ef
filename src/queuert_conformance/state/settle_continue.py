"""settle: continuing a chain with its next job."""

from __future__ import annotations

from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch
from queuert.records.listings import PageRequest
from queuert.records.model import Created, When
from queuert_conformance.checks import equal, present, raises, same_json
from queuert_conformance.state.build import (
    FUTURE,
    PAST,
    WORKER,
    completed,
    continued,
    later,
    new_id,
    new_job,
    next_job,
    waiting_for,
)
from queuert_conformance.state.store import Store, case, driver_case


@driver_case
async def handing_over(store: Store) -> None:
    """A continued job is completed without an output and names the next job, which is stored."""
    claimed = await store.running("first", chain_trace_context="00-chain")
    following = next_job(
        claimed.job,
        "second",
        input=b'{"step":2}',
        priority=7,
        schedule=When(at=PAST),
        deadline=When(at=FUTURE),
        trace_context="00-a",
        chain_trace_context="00-chain",
    )
    settled = await store.settle(continued(claimed, following))
    made = Created(following.id, claimed.job.id, "pending", ready=True)
    equal((settled.applied, settled.created, settled.unblocked), ([True], [made], []), "answer")
    done = await store.job(claimed.job.id)
    equal((done.status, done.output, done.continued_to), ("completed", None, following.id), "the first job")
    equal((done.completed_by, done.token), (WORKER, None), "worker and token of the first job")
    row = await store.job(following.id)
    place = (row.chain_id, row.chain_type, row.chain_index, row.type_name)
    equal(place, (claimed.job.id, "first", 1, "second"), "place of the second job")
    equal((row.status, row.attempt, row.priority), ("pending", 0, 7), "state of the second job")
    equal((row.scheduled_at, row.deadline), (row.created_at, FUTURE), "times of the second job")
    equal((row.trace_context, row.chain_trace_context), ("00-a", "00-chain"), "traces of the second job")
    same_json(row.input, b'{"step":2}', "input of the second job")


@case
async def a_chain_goes_on_for_long(store: Store) -> None:
    """A chain may have any number of jobs, in order, even of one type in a loop."""
    claimed = await store.running()
    chain_id = claimed.job.chain_id
    for _ in range(30):
        await store.settle(continued(claimed, next_job(claimed.job)))
        claimed = await store.claim_one()
    await store.settle(completed(claimed, b'"end"'))
    rows = await store.chain_jobs(chain_id, PageRequest(100))
    equal([row.chain_index for row in rows], list(range(31)), "chain indexes")
    equal([row.continued_to for row in rows[:-1]], [row.id for row in rows[1:]], "hand-overs")
    chain = await store.chain(chain_id)
    equal((chain.current.id, chain.current.output), (rows[-1].id, b'"end"'), "the end of the chain")


@case
async def the_next_job_can_wait(store: Store) -> None:
    """A continuation may be scheduled for later: it is pending and not ready."""
    claimed = await store.running()
    (made,) = (await store.settle(continued(claimed, next_job(claimed.job, schedule=later())))).created
    equal(made and (made.status, made.ready), ("pending", False), "answer")
    equal((await store.claim()).jobs, [], "claimed before its time")


@case
async def continuing_without_a_worker(store: Store) -> None:
    """A chain can be continued without a claim, several steps in a transaction, if blocked too."""
    source = await store.start("source")
    job = await store.start(blockers=waiting_for(source, chain_type="source"))
    async with store.transaction() as tx:
        second = next_job(await store.job(job, tx=tx), "second")
        equal((await store.settle(continued(job, second), tx=tx)).applied, [True], "first step")
        third = next_job(await store.job(second.id, tx=tx), "third")
        equal((await store.settle(continued(second.id, third), tx=tx)).applied, [True], "second step")
        equal((await store.settle(completed(third.id, b"3"), tx=tx)).applied, [True], "third step")
    chain = await store.chain(job)
    current = chain.current
    equal((current.id, current.status, current.output), (third.id, "completed", b"3"), "the chain")
    rows = await store.chain_jobs(job)
    equal([row.completed_by for row in rows], [None] * 3, "workers")
    equal([row.chain_index for row in rows], [0, 1, 2], "chain indexes")


@case
async def a_lost_settlement_stores_no_continuation(store: Store) -> None:
    """The continuation of a settlement without a valid claim is not stored."""
    claimed = await store.running(lease=0)
    await store.reap("task")
    following = next_job(claimed.job)
    settled = await store.settle(continued(claimed, following))
    equal((settled.applied, settled.created), ([False], [None]), "answer")
    equal(await store.statuses(claimed.job.id, following.id), ["pending", None], "both jobs")


@case
async def a_repeated_settlement_is_skipped(store: Store) -> None:
    """A settlement that is repeated after an unclear commit is skipped, without an error."""
    claimed = await store.running()
    settlement = continued(claimed, next_job(claimed.job))
    equal((await store.settle(settlement)).applied, [True], "the first time")
    again = await store.settle(settlement)
    equal((again.applied, again.created), ([False], [None]), "the second time")
    equal(len(await store.chain_jobs(claimed.job.id)), 2, "jobs of the chain")


@case
async def a_bad_continuation_of_a_lost_settlement(store: Store) -> None:
    """A settlement without a valid claim is skipped, even if its continuation has bad blockers."""
    claimed = await store.running()
    await store.settle(completed(claimed))
    late = continued(claimed, next_job(claimed.job, blockers=waiting_for(new_id())))
    equal((await store.settle(late)).applied, [False], "applied")


@case
async def a_bad_continuation_settles_nothing(store: Store) -> None:
    """A continuation with a stored id or a bad blocker rejects the whole call."""
    await store.create(new_job(), new_job())
    one, two = (await store.claim()).jobs
    source = await store.start("source")
    bad = [
        (JobIdExists, next_job(two.job, id=one.job.id)),
        (BlockerNotFound, next_job(two.job, blockers=waiting_for(new_id()))),
        (JobTypeMismatch, next_job(two.job, blockers=waiting_for(source, chain_type="other"))),
    ]
    for error, continuation in bad:
        with raises(error, "a bad continuation"):
            await store.settle(completed(one), continued(two, continuation))
        equal(await store.jobs(one.job.id, two.job.id), [one.job, two.job], "both jobs")
    equal((await store.settle(completed(one), completed(two))).applied, [True, True], "a good call afterwards")


@driver_case
async def a_refused_call_leaves_its_transaction_usable(store: Store) -> None:
    """After a rejected settlement the same transaction can settle in another way."""
    claimed = await store.running()
    async with store.transaction() as tx:
        with raises(JobIdExists, "the id of the job itself"):
            await store.settle(continued(claimed, next_job(claimed.job, id=claimed.job.id)), tx=tx)
        equal((await store.settle(completed(claimed), tx=tx)).applied, [True], "the second try")
    equal(await store.statuses(claimed.job.id), ["completed"], "the job")


@case
async def two_continuations_with_one_id(store: Store) -> None:
    """Two continuations of one call with the same id: JobIdExists, and nothing is settled."""
    await store.create(new_job(), new_job())
    one, two = (await store.claim()).jobs
    same = new_id()
    with raises(JobIdExists, "an id twice in one call"):
        await store.settle(continued(one, next_job(one.job, id=same)), continued(two, next_job(two.job, id=same)))
    equal(await store.statuses(one.job.id, two.job.id, same), ["running", "running", None], "jobs")


@case
async def a_continuation_keeps_the_output_apart(store: Store) -> None:
    """A chain whose last output is null has ended: it is not taken for a continued one."""
    claimed = await store.running()
    await store.settle(continued(claimed, next_job(claimed.job)))
    await store.settle(completed(await store.claim_one(), b"null"))
    chain = await store.chain(claimed.job.id)
    equal((chain.first.output, chain.current.output), (None, b"null"), "outputs")
    equal((present(chain.first.continued_to, "continued_to"), chain.current.continued_to), (chain.current.id, None),
          "hand-overs")  # fmt: skip
