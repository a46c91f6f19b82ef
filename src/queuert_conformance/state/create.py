"""create_jobs: what is stored, what is returned, and that a rejected call stores nothing."""

from __future__ import annotations

from datetime import timedelta

from queuert.errors import BlockerNotFound, JobIdExists
from queuert.records.model import Created, NewJob, When
from queuert_conformance.checks import check, equal, raises, same_json
from queuert_conformance.state.build import (
    FUTURE,
    HOUR,
    INPUT,
    PAST,
    continued,
    key,
    later,
    new_ids,
    new_job,
    next_job,
    waiting_for,
)
from queuert_conformance.state.store import Store, case, driver_case

SLACK = timedelta(seconds=20)


@driver_case
async def every_field_is_stored(store: Store) -> None:
    """A new job is stored with all its arguments. All other fields are empty."""
    job = new_job(
        "full",
        priority=-3,
        schedule=When(at=FUTURE),
        deadline=When(at=PAST),
        dedup=key("k"),
        trace_context="00-a",
        chain_trace_context="00-b",
    )
    await store.create(job)
    row = await store.job(job.id)
    given = (row.id, row.type_name, row.chain_id, row.chain_type, row.chain_index, row.priority)
    equal(given, (job.id, "full", job.id, "full", 0, -3), "identity and priority")
    same_json(row.input, INPUT, "input")
    equal((row.scheduled_at, row.deadline, row.dedup_key), (FUTURE, PAST, "k"), "schedule, deadline and key")
    equal((row.trace_context, row.chain_trace_context), ("00-a", "00-b"), "trace contexts")
    equal((row.status, row.attempt, row.blockers_left), ("pending", 0, 0), "state")
    untouched = (row.output, row.completed_at, row.completed_by, row.continued_to, row.last_attempt_at)
    equal(untouched, (None,) * 5, "fields of a later life")
    equal((row.last_error, row.leased_by, row.leased_until, row.token), (None,) * 4, "fields of a claim")


@case
async def defaults_are_now_and_no_deadline(store: Store) -> None:
    """Without a schedule a job is due now; without a deadline it has none."""
    row = await store.job(await store.start())
    check(abs(row.scheduled_at - row.created_at) < SLACK, "scheduled_at must be the time of creation")
    equal((row.deadline, row.dedup_key, row.priority), (None, None, 100), "deadline, key and priority")


@case
async def answers_come_in_order(store: Store) -> None:
    """Each job of a call is returned in its place, with its id, chain, status and readiness."""
    source = await store.start("source")
    jobs = [new_job(), new_job(schedule=later()), new_job(blockers=waiting_for(source, chain_type="source"))]
    expected = [
        Created(jobs[0].id, jobs[0].id, "pending", ready=True),
        Created(jobs[1].id, jobs[1].id, "pending", ready=False),
        Created(jobs[2].id, jobs[2].id, "blocked", ready=False),
    ]
    equal(await store.create(*jobs), expected, "answers")


@case
async def ids_need_not_ascend(store: Store) -> None:
    """Results keep the order of the call, whatever the order of the ids is."""
    jobs = [new_job(id=job_id) for job_id in reversed(new_ids(5))]
    equal([c.job_id for c in await store.create(*jobs)], [job.id for job in jobs], "answered ids")


@case
async def delays_count_from_the_database_clock(store: Store) -> None:
    """`after` counts from the database's now, for the schedule and for the deadline."""
    row = await store.job(await store.start(schedule=later(), deadline=later(2 * HOUR)))
    wanted = row.created_at + timedelta(seconds=HOUR)
    check(abs(row.scheduled_at - wanted) < SLACK, f"scheduled_at must be about {wanted}, is {row.scheduled_at}")
    check(row.deadline is not None, "the deadline must be stored")
    distance = (row.deadline or row.scheduled_at) - row.scheduled_at
    check(abs(distance - timedelta(hours=1)) < SLACK, f"the deadline must be an hour later, is {distance}")


@case
async def moments_in_the_past_are_ready(store: Store) -> None:
    """A schedule in the past is now: the job is ready, behind those that were ready before."""
    first, second = new_ids(2)
    await store.start(id=second)
    await store.elapse(0.002)
    (made,) = await store.create(new_job(id=first, schedule=When(at=PAST)))
    equal((made.status, made.ready), ("pending", True), "status and readiness")
    row = await store.job(first)
    equal(row.scheduled_at, row.created_at, "scheduled_at")
    equal([claimed.job.id for claimed in (await store.claim()).jobs], [second, first], "claimed jobs")


@case
async def a_delay_that_has_passed_makes_ready(store: Store) -> None:
    """A delayed job is not claimed before its time, and is afterwards."""
    made, _ = await store.create(new_job(schedule=When(after=0.3)), new_job(schedule=later()))
    check(not made.ready, "it must not be ready at once")
    await store.elapse(0.4)
    equal([c.job.id for c in (await store.claim()).jobs], [made.job_id], "claimed after the delay")


@case
async def a_stored_id_is_refused(store: Store) -> None:
    """An id that is already stored raises JobIdExists with that id, and nothing is stored."""
    taken = await store.start()
    other = new_job()
    with raises(JobIdExists, "a stored id") as caught:
        await store.create(other, new_job("another", id=taken))
    equal(caught.error.job_id, taken, "job_id of the error")
    equal(await store.statuses(other.id), [None], "the other job of the call")
    equal((await store.job(taken)).type_name, "task", "type of the job that was there before")


@case
async def the_id_of_a_continuation_is_refused(store: Store) -> None:
    """The ids of all jobs count, not only those of first jobs."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    with raises(JobIdExists, "the id of a continuation"):
        await store.create(new_job(id=following.id))


@case
async def an_id_twice_in_one_call_is_refused(store: Store) -> None:
    """The same id twice in one call raises JobIdExists, and nothing of the call is stored."""
    twice = new_job()
    other = new_job()
    with raises(JobIdExists, "an id twice in one call") as caught:
        await store.create(other, twice, new_job(id=twice.id))
    equal(caught.error.job_id, twice.id, "job_id of the error")
    equal(await store.statuses(other.id, twice.id), [None, None], "jobs of the call")


@driver_case
async def a_refused_call_leaves_its_transaction_usable(store: Store) -> None:
    """A rejected call stores nothing, even if its transaction continues and commits."""
    taken = await store.start()
    refused = [new_job(dedup=key("a")), new_job(id=taken)]
    unknown = [new_job(dedup=key("b")), new_job(blockers=waiting_for(new_job().id))]
    async with store.transaction() as tx:
        before = await store.start(tx=tx)
        with raises(JobIdExists, "a stored id"):
            await store.create(*refused, tx=tx)
        with raises(BlockerNotFound, "an unknown blocker"):
            await store.create(*unknown, tx=tx)
        after = new_job(dedup=key("a"))
        await store.create(after, tx=tx)
    equal(await store.statuses(before, after.id), ["pending", "pending"], "jobs of the accepted calls")
    equal(await store.statuses(refused[0].id, unknown[0].id), [None, None], "jobs of the rejected calls")


@case
async def many_jobs_with_an_id_that_is_refused(store: Store) -> None:
    """The same for many jobs, which an adapter may store in another way."""
    taken = await store.start()
    many = [new_job() for _ in range(50)]
    async with store.transaction() as tx:
        with raises(JobIdExists, "a stored id among many") as caught:
            await store.create(*many, new_job(id=taken), tx=tx)
        equal(caught.error.job_id, taken, "job_id of the error")
        with raises(JobIdExists, "an id twice among many"):
            await store.create(*many, many[7], tx=tx)
        after = await store.start(tx=tx)
    equal(await store.statuses(after, many[0].id, many[-1].id), ["pending", None, None], "after the rejected calls")
    await store.create(*many)
    equal(set(await store.statuses(*[job.id for job in many])), {"pending"}, "the same jobs, accepted")
    claimed = await store.claim()
    equal(len(claimed.jobs), 52, "claimed jobs")


@case
async def rolled_back_ids_are_free(store: Store) -> None:
    """An id that was rolled back can be used again."""
    job = new_job()
    async with store.rolled_back() as tx:
        await store.create(job, tx=tx)
    await store.create(job)
    equal(await store.statuses(job.id), ["pending"], "the job")


@driver_case
async def a_thousand_jobs_in_one_call(store: Store) -> None:
    """A call takes a thousand jobs with types, keys and blockers, and returns each in order."""
    source = await store.start("source")
    jobs: list[NewJob] = []
    for number in range(1_000):
        blockers = waiting_for(source, chain_type="source") if number % 5 == 0 else ()
        dedup = key(f"k{number}") if number % 3 == 0 else None
        jobs.append(new_job(f"type-{number % 7}", input=b"%d" % number, blockers=blockers, dedup=dedup))
    created = await store.create(*jobs)
    equal([c.job_id for c in created], [job.id for job in jobs], "answered ids")
    rows = await store.jobs(*(job.id for job in jobs))
    equal([row and row.input for row in rows], [job.input for job in jobs], "stored inputs")
    equal(sum(c.status == "blocked" for c in created), 200, "blocked jobs")


@case
async def empty_call(store: Store) -> None:
    """Without jobs, the result is empty."""
    equal(await store.create(), [], "answers")
