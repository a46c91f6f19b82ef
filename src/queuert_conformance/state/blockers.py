"""Blockers at creation: which jobs start blocked, and which calls are rejected."""

from __future__ import annotations

from queuert.base.statuses import Status
from queuert.errors import BlockerNotFound, JobTypeMismatch
from queuert.records.model import BlockerRef
from queuert_conformance.checks import equal, raises
from queuert_conformance.state.build import continued, end_as, new_id, new_ids, new_job, next_job, waiting_for
from queuert_conformance.state.store import Store, case, driver_case

UNSUCCESSFUL: tuple[Status, ...] = ("failed", "cancelled", "expired")


@case
async def an_open_blocker_blocks(store: Store) -> None:
    """A job with a blocker that is not completed is blocked and cannot be claimed."""
    source = await store.start("source")
    (made,) = await store.create(new_job(blockers=waiting_for(source, chain_type="source")))
    equal((made.status, made.ready), ("blocked", False), "answer")
    row = await store.job(made.job_id)
    equal((row.status, row.blockers_left), ("blocked", 1), "stored state")
    equal((await store.claim()).jobs, [], "claimed jobs")


@case
async def completed_blockers_do_not_count(store: Store) -> None:
    """A job whose blockers are all completed is pending from the start."""
    source = await store.start("source")
    await store.finish(source)
    (made,) = await store.create(new_job(blockers=waiting_for(source, chain_type="source")))
    equal((made.status, made.ready), ("pending", True), "answer")
    row = await store.job(made.job_id)
    equal((row.status, row.blockers_left), ("pending", 0), "stored state")
    equal([b.chain_id for b in (await store.blockers(made.job_id))[0]], [source], "its blockers")


@case
async def only_open_blockers_are_counted(store: Store) -> None:
    """`blockers_left` counts the distinct chains that are not completed."""
    sources = new_ids(4)
    await store.create(*(new_job("source", id=each) for each in sources))
    await store.finish(sources[1])
    job = await store.start(blockers=waiting_for(*sources, *sources, chain_type="source"))
    equal((await store.job(job)).blockers_left, 3, "blockers_left")


@case
async def a_chain_named_twice_is_one_edge(store: Store) -> None:
    """A chain named twice is one blocker, at its first position."""
    first, second = await store.start("source"), await store.start("source")
    job = await store.start(blockers=waiting_for(first, second, first, chain_type="source"))
    equal((await store.job(job)).blockers_left, 2, "blockers_left")
    equal([b.chain_id for b in (await store.blockers(job))[0]], [first, second], "blockers")
    await store.finish(first)
    equal(await store.statuses(job), ["blocked"], "after the first")
    await store.finish(second)
    equal(await store.statuses(job), ["pending"], "after both")


@case
async def a_chain_on_its_way_blocks(store: Store) -> None:
    """A chain whose first job is completed, but not its last, is not completed."""
    claimed = await store.running("source")
    await store.settle(continued(claimed, next_job(claimed.job)))
    job = await store.start("late", blockers=waiting_for(claimed.job.id, chain_type="source"))
    equal(await store.statuses(job), ["blocked"], "the job")


@case
async def an_unsuccessful_blocker_blocks(store: Store) -> None:
    """A failed, expired or cancelled blocker is not completed: the new job is blocked."""
    for status in UNSUCCESSFUL:
        source = await store.start("source")
        await store.settle(end_as(status, source))
        job = await store.start(blockers=waiting_for(source, chain_type="source"))
        row = await store.job(job)
        equal((row.status, row.blockers_left), ("blocked", 1), f"a job behind a {status} chain")


@case
async def an_unknown_blocker_is_refused(store: Store) -> None:
    """An unknown blocker raises BlockerNotFound with both ids, and nothing is stored."""
    missing = new_id()
    good, bad = new_job(), new_job(blockers=waiting_for(missing))
    with raises(BlockerNotFound, "an unknown blocker") as caught:
        await store.create(good, bad)
    equal((caught.error.job_id, caught.error.chain_id), (bad.id, missing), "fields of the error")
    equal(await store.statuses(good.id, bad.id), [None, None], "jobs of the call")


@driver_case
async def a_blocker_of_another_type_is_refused(store: Store) -> None:
    """A blocking chain of another type raises JobTypeMismatch, and nothing is stored."""
    source = await store.start("source")
    good, bad = new_job(), new_job(blockers=waiting_for(source, chain_type="other"))
    with raises(JobTypeMismatch, "a blocker of another type") as caught:
        await store.create(good, bad)
    error = caught.error
    equal((error.job_id, error.expected, error.actual), (source, "other", "source"), "fields of the error")
    equal(await store.statuses(good.id, bad.id), [None, None], "jobs of the call")


@case
async def the_type_of_a_blocker_is_its_chains(store: Store) -> None:
    """The type of the chain counts, not the type of its current job."""
    claimed = await store.running("source")
    await store.settle(continued(claimed, next_job(claimed.job, "middle")))
    with raises(JobTypeMismatch, "the type of the current job"):
        await store.start(blockers=waiting_for(claimed.job.id, chain_type="middle"))
    await store.start(blockers=waiting_for(claimed.job.id, chain_type="source"))


@case
async def a_later_job_is_no_chain(store: Store) -> None:
    """The id of a continuation is not the id of a chain: BlockerNotFound."""
    claimed = await store.running()
    following = next_job(claimed.job)
    await store.settle(continued(claimed, following))
    with raises(BlockerNotFound, "the id of a continuation"):
        await store.start("late", blockers=waiting_for(following.id))


@case
async def a_job_cannot_wait_for_itself(store: Store) -> None:
    """A first job may not have its own chain as a blocker: BlockerNotFound."""
    job_id = new_id()
    with raises(BlockerNotFound, "its own chain"):
        await store.start(id=job_id, blockers=waiting_for(job_id))
    equal(await store.statuses(job_id), [None], "the job")


@case
async def a_continuation_cannot_wait_for_its_chain(store: Store) -> None:
    """A continuation with its own chain as a blocker: BlockerNotFound, nothing is settled."""
    claimed = await store.running()
    following = next_job(claimed.job, blockers=waiting_for(claimed.job.chain_id))
    with raises(BlockerNotFound, "its own chain"):
        await store.settle(continued(claimed, following))
    equal(await store.statuses(claimed.job.id, following.id), ["running", None], "both jobs")


@case
async def blockers_of_the_same_call(store: Store) -> None:
    """The same call may create blocking chains, if they come earlier in it."""
    source = new_job("source")
    middle = new_job("middle", blockers=waiting_for(source.id, chain_type="source"))
    last = new_job(blockers=(*waiting_for(source.id, chain_type="source"), BlockerRef(middle.id, "middle")))
    created = await store.create(source, middle, last)
    equal([c.status for c in created], ["pending", "blocked", "blocked"], "statuses")
    equal((await store.job(last.id)).blockers_left, 2, "blockers_left of the last")


@case
async def blockers_that_come_later_are_refused(store: Store) -> None:
    """A blocker that comes later in the same call does not exist yet: BlockerNotFound."""
    source = new_job("source")
    job = new_job(blockers=waiting_for(source.id, chain_type="source"))
    with raises(BlockerNotFound, "a blocker that comes later"):
        await store.create(job, source)
    equal(await store.statuses(job.id, source.id), [None, None], "jobs of the call")


@case
async def the_type_is_checked_within_a_call(store: Store) -> None:
    """A blocker of the same call with another type is rejected too."""
    source = new_job("source")
    with raises(JobTypeMismatch, "a blocker of another type"):
        await store.create(source, new_job(blockers=waiting_for(source.id, chain_type="other")))
    equal(await store.statuses(source.id), [None], "the blocker")


@case
async def urgency_does_not_unblock(store: Store) -> None:
    """A blocked job is neither claimed nor due, however urgent it is."""
    source = await store.start("source", priority=500)
    job = await store.start(blockers=waiting_for(source, chain_type="source"), priority=-500)
    equal((await store.claim()).jobs, [], "claimed although blocked")
    equal(await store.next_available_in("task"), None, "due time of a blocked job")
    equal(await store.statuses(job), ["blocked"], "the job")


@case
async def many_blockers(store: Store) -> None:
    """A job may wait for hundreds of chains. They are returned in the order given."""
    sources = new_ids(300)
    await store.create(*(new_job("source", id=each) for each in sources))
    named = sources[::-1]
    job = await store.start(blockers=waiting_for(*named, chain_type="source"))
    equal((await store.job(job)).blockers_left, 300, "blockers_left")
    equal([b.chain_id for b in (await store.blockers(job))[0]], named, "blockers")
