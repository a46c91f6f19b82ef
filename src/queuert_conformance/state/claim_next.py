"""claim: when to claim again."""

from __future__ import annotations

from queuert.records.model import ClaimResult, TypeLimit
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import later, new_job, put_back, queue, request, waiting_for
from queuert_conformance.state.store import Store, case, driver_case


def due_in(result: ClaimResult, seconds: float) -> None:
    """Check that the next job is due in this many seconds."""
    wait = present(result.next_in, "next_in")
    check(seconds - 20 <= wait <= seconds + 0.5, f"the next job is due in {seconds:g} s, not in {wait:g} s")


@case
async def the_earliest_later_job(store: Store) -> None:
    """`next_in` is the time until the earliest job of the requested types that is not due yet."""
    await store.create(
        new_job("a", schedule=later(3000), priority=1),
        new_job("b", schedule=later(2000), priority=2),
        new_job("other", schedule=later(500)),
    )
    due_in(await store.claim(request(queue("a", "b", "missing"))), 2000)
    due_in(await store.claim(request(queue("a", name="one"), queue("b", name="two", priority=1))), 2000)
    due_in(await store.claim(request(queue("a"))), 3000)


@driver_case
async def beside_what_was_claimed(store: Store) -> None:
    """`next_in` is also returned if jobs were claimed, and does not count them."""
    await store.create(new_job(), new_job(schedule=later(1000)), new_job())
    result = await store.claim()
    equal(len(result.jobs), 2, "claimed jobs")
    due_in(result, 1000)
    await store.settle(put_back(result.jobs[0], schedule=later(400)))
    due_in(await store.claim(), 400)


@case
async def none_without_later_jobs(store: Store) -> None:
    """Only pending jobs for later give a `next_in`: not running, blocked or ended ones."""
    source = await store.start("source", schedule=later())
    await store.start(schedule=later(), blockers=waiting_for(source, chain_type="source"))
    await store.finish(await store.start(schedule=later()))
    await store.start()
    for _ in range(2):
        equal((await store.claim()).next_in, None, "next_in")


@case
async def none_if_there_is_more(store: Store) -> None:
    """If more jobs can be claimed at once, there is no `next_in`."""
    await store.create(new_job(), new_job(), new_job(schedule=later()))
    result = await store.claim(request(limit=1))
    equal((result.more, result.next_in), (True, None), "more and next_in")


@case
async def due_jobs_that_a_limit_leaves_out(store: Store) -> None:
    """Due jobs that a limit or a cap excludes do not count."""
    await store.create(new_job(), new_job(), new_job(schedule=later(1000)))
    due_in(await store.claim(request(queue("task", max_concurrency=0))), 1000)
    due_in(await store.claim(request(queue("task"), cluster_cap=0)), 1000)
    due_in(await store.claim(request(queue(TypeLimit("task", 1, 60)))), 1000)
