"""settle: many claims of one worker in one call, some at the end of their chain and some not."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.errors import JobIdExists
from queuert.records.model import Claimed, Created, Settlement, When
from queuert_conformance.checks import equal, raises, same_json
from queuert_conformance.state.build import (
    PAST,
    completed,
    continued,
    failed,
    later,
    new_job,
    next_job,
    put_back,
    request,
    waiting_for,
)
from queuert_conformance.state.store import Store, case, driver_case


async def claims(store: Store, number: int) -> list[Claimed]:
    await store.create(*(new_job() for _ in range(number)))
    return (await store.claim(request(limit=number))).jobs


async def check_stored(store: Store, claimed: Sequence[Claimed], settlements: Sequence[Settlement]) -> None:
    """Check that each job has ended as its settlement states.

    If it has a continuation, that is the current job.
    """
    for claim, settlement in zip(claimed, settlements, strict=True):
        chain = await store.chain(claim.job.id)
        following = settlement.continuation
        done = await store.job(claim.job.id)
        equal((done.status, done.attempt, done.completed_by), ("completed", 1, settlement.worker), "the job")
        if following is None:
            same_json(done.output or b"", settlement.output or b"", "output")
            equal((done.continued_to, chain.current.id), (None, done.id), "an end")
            continue
        current = chain.current
        equal((done.output, done.continued_to, current.id), (None, following.id, following.id), "a hand-over")
        place = (current.chain_type, current.chain_index, current.type_name, current.status, current.attempt)
        equal(place, (claim.job.chain_type, 1, following.type_name, "pending", 0), "a next job")
        same_json(current.input, following.input, "input")
        equal(current.priority, following.priority, "priority")
        traces = (current.trace_context, current.chain_trace_context)
        equal(traces, (following.trace_context, following.chain_trace_context), "traces")


@driver_case
async def ends_and_continuations(store: Store) -> None:
    """Each settlement of a group has its own result. Their order does not matter."""
    one, two, three, four, five = await claims(store, 5)
    settlements = [
        completed(five, b'{"a":[1,"x,y"]}'),
        continued(two, next_job(two.job, "second", input=b'{"text":"a, b","n":2}', priority=3)),
        completed(one, b"null"),
        continued(four, next_job(four.job, "a,b", input=b"[]", trace_context="00-t", chain_trace_context="00-c")),
        continued(three, next_job(three.job, input=b'"3"')),
    ]
    settled = await store.settle(*settlements)
    equal((settled.applied, settled.unblocked), ([True] * 5, []), "answer")
    made = [
        following and Created(following.id, following.chain_id, "pending", ready=True)
        for following in (settlement.continuation for settlement in settlements)
    ]
    equal(settled.created, made, "created")
    await check_stored(store, [five, two, one, four, three], settlements)
    ready = {(await store.claim_one(name)).job.id for name in ("second", "a,b", "task")}
    equal(ready, {each.job_id for each in made if each}, "claimed afterwards")


@driver_case
async def odd_names_of_types(store: Store) -> None:
    """The name of a continuation's type may contain any characters."""
    claimed = await claims(store, 3)
    names = ["with, comma", "with\x1eseparator", 'with "quotes" and \\ and {braces}']
    settlements = [continued(each, next_job(each.job, name)) for each, name in zip(claimed, names, strict=True)]
    equal((await store.settle(*settlements)).applied, [True] * 3, "applied")
    await check_stored(store, claimed, settlements)


@driver_case
async def a_lost_claim_among_others(store: Store) -> None:
    """A lost claim stores no continuation. The others continue, each with its own next job."""
    one, two, three, four, five = await claims(store, 5)
    await store.settle(put_back(two), failed(four))
    settlements = [
        continued(one, next_job(one.job, "second", input=b"1", priority=1, trace_context="00-1")),
        continued(two, next_job(two.job, "second", input=b"2", priority=2, trace_context="00-2")),
        continued(three, next_job(three.job, "third", input=b"3", priority=3, trace_context="00-3")),
        completed(four, b"4"),
        completed(five, b"5"),
    ]
    settled = await store.settle(*settlements)
    equal(settled.applied, [True, False, True, False, True], "applied")
    equal([made is not None for made in settled.created], [True, False, True, False, False], "created")
    await check_stored(store, [one, three, five], [settlements[0], settlements[2], settlements[4]])
    lost = settlements[1].continuation
    assert lost is not None
    equal(await store.statuses(two.job.id, lost.id, four.job.id), ["pending", None, "failed"], "the lost ones")
    equal(await store.chain_jobs(two.job.id), [await store.job(two.job.id)], "the chain of a lost one")


@case
async def nothing_but_lost_claims(store: Store) -> None:
    """If every claim of a group is lost, nothing is stored, whether or not its next ids exist."""
    one, two = await claims(store, 2)
    await store.settle(completed(one), completed(two))
    settled = await store.settle(continued(one, next_job(one.job, id=two.job.id)), continued(two, next_job(two.job)))
    equal((settled.applied, settled.created), ([False, False], [None, None]), "answer")
    equal(len(await store.list_jobs()), 2, "jobs")


@driver_case
async def an_id_that_exists_among_others(store: Store) -> None:
    """A stored continuation id rejects the whole group. The error names the first such id."""
    one, two, three = await claims(store, 3)
    first, other = await store.start("other"), await store.start("other")
    before = await store.list_jobs()
    with raises(JobIdExists, "two ids that are stored") as refused:
        await store.settle(
            continued(three, next_job(three.job, id=other)),
            completed(one),
            continued(two, next_job(two.job, id=first)),
        )
    equal(refused.error.job_id, other, "the id in the error")
    equal(await store.list_jobs(), before, "all jobs")
    again = await store.settle(completed(one), continued(two, next_job(two.job)), continued(three, next_job(three.job)))
    equal(again.applied, [True] * 3, "a good call afterwards")


@case
async def dependents_wait_for_the_end(store: Store) -> None:
    """Jobs keep waiting while a group continues their blocker, and are unblocked at its end."""
    one, two, three = await claims(store, 3)
    both = await store.start("waiting", blockers=waiting_for(one.job.id, two.job.id))
    last = await store.start("waiting", blockers=waiting_for(three.job.id))
    settled = await store.settle(
        continued(one, next_job(one.job)), continued(two, next_job(two.job)), completed(three, b"3")
    )
    equal([freed.job_id for freed in settled.unblocked], [last], "unblocked by the one that ended")
    equal(await store.statuses(both, last), ["blocked", "pending"], "statuses")
    nexts = (await store.claim()).jobs
    added = await store.start("waiting", blockers=waiting_for(one.job.id))
    settled = await store.settle(continued(nexts[0], next_job(nexts[0].job)), completed(nexts[1]))
    equal(settled.unblocked, [], "unblocked while one continues")
    settled = await store.settle(completed(await store.claim_one(), b"1"))
    equal(sorted(freed.job_id for freed in settled.unblocked), sorted([both, added]), "unblocked at the end")


@driver_case
async def some_that_are_not_plain(store: Store) -> None:
    """A group may mix failures with continuations that are scheduled, blocked or have deadlines."""
    one, two, three, four, five, six = await claims(store, 6)
    source = await store.start("source")
    settled = await store.settle(
        completed(one, b"1"),
        continued(two, next_job(two.job, "second")),
        continued(three, next_job(three.job, "second", schedule=later())),
        continued(four, next_job(four.job, "second", blockers=waiting_for(source, chain_type="source"))),
        continued(five, next_job(five.job, "second", schedule=When(at=PAST), deadline=When(after=60.0))),
        failed(six),
    )
    equal(settled.applied, [True] * 6, "applied")
    states = [made and (made.status, made.ready) for made in settled.created]
    expected = [None, ("pending", True), ("pending", False), ("blocked", False), ("pending", True), None]
    equal(states, expected, "created")


@case
async def the_same_job_twice(store: Store) -> None:
    """Of two settlements of one claim, the first takes effect with its continuation."""
    one, two = await claims(store, 2)
    first, second = next_job(one.job), next_job(one.job)
    settled = await store.settle(continued(one, first), completed(two, b"2"), continued(one, second), completed(one))
    equal(settled.applied, [True, True, False, False], "applied")
    equal([made and made.job_id for made in settled.created], [first.id, None, None, None], "created")
    equal(await store.statuses(one.job.id, first.id, second.id), ["completed", "pending", None], "statuses")


@case
async def a_long_group(store: Store) -> None:
    """A group can have hundreds of claims. Here every third ends its chain."""
    claimed = await claims(store, 300)
    settlements = [
        completed(each, str(number).encode())
        if number % 3 == 0
        else continued(each, next_job(each.job, f"type {number % 5}", input=str(number).encode(), priority=number))
        for number, each in enumerate(claimed)
    ]
    settled = await store.settle(*reversed(settlements))
    equal(settled.applied, [True] * 300, "applied")
    await check_stored(store, claimed[:30], settlements[:30])
    equal(len(await store.list_jobs()), 500, "jobs")
