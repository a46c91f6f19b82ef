"""Deduplication before a chain begins: the scope "waiting", debounce and throttle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from queuert.records.model import Collapse, Created, JobRow, NewJob
from queuert_conformance.checks import check, equal, present
from queuert_conformance.state.build import (
    HOUR,
    completed,
    continued,
    given_back,
    key,
    later,
    new_job,
    next_job,
    put_back,
    waiting_for,
)
from queuert_conformance.state.dedup import found, started
from queuert_conformance.state.store import Store, case, driver_case

WAITING = key("k", scope="waiting")
MINUTE = 60.0


def debounced(collapse: Collapse = "replace", *, wait: float = MINUTE, at_most: float = HOUR, **fields: Any) -> NewJob:
    """A job that is debounced under the key "k"."""
    dedup = key("k", scope="waiting", window=at_most)
    return new_job(dedup=dedup, collapse=collapse, schedule=later(wait), **fields)


def throttled(per: float = HOUR, **fields: Any) -> NewJob:
    """A job that is throttled under the key "k", with `trailing`."""
    return new_job(dedup=key("k", scope="any", window=per), collapse="trail", **fields)


async def collapsed(store: Store, job: NewJob, chain_id: str, *, replaced: bool) -> JobRow:
    """Start a job that must find this chain. Returns the first job of the chain."""
    (made,) = await store.create(job)
    row = present(made.existing, "existing").first
    equal((row.id, made.replaced), (chain_id, replaced), "the chain that was found, and `replaced`")
    equal(row, await store.job(chain_id), "the job as it is stored")
    return row


async def fresh(store: Store, job: NewJob) -> Created:
    """Start a job that must start a chain."""
    (made,) = await store.create(job)
    equal((made.existing, made.chain_id), (None, job.id), "the new chain")
    return made


# The scope "waiting"


@case
async def a_waiting_chain_is_found(store: Store) -> None:
    """A chain that is pending or blocked has not begun, and matches."""
    source = await store.start("source")
    (blocked,) = await store.create(new_job(dedup=WAITING, blockers=waiting_for(source, chain_type="source")))
    equal((await found(store, WAITING, blocked.chain_id)).status, "blocked", "status while blocked")
    await store.finish(source)
    equal((await found(store, WAITING, blocked.chain_id)).status, "pending", "status while pending")


@driver_case
async def a_chain_that_has_begun_is_not_waiting(store: Store) -> None:
    """A chain that is running, waits for another attempt or has moved on does not match."""
    for ending in ("running", "pending", "continued", "completed"):
        dedup = key(ending, scope="waiting")
        await started(store, dedup)
        claimed = await store.claim_one()
        if ending == "pending":
            await store.settle(put_back(claimed, schedule=later()))
        elif ending == "continued":
            await store.settle(continued(claimed, next_job(claimed.job, "other")))
        elif ending == "completed":
            await store.settle(completed(claimed))
        second = await started(store, dedup)
        await found(store, dedup, second)
        await store.finish(second)


@case
async def a_claim_that_is_given_back_has_not_begun(store: Store) -> None:
    """A chain whose claim was given back matches: no handler of it has begun."""
    first = await started(store, WAITING)
    await store.settle(given_back(await store.claim_one()))
    await found(store, WAITING, first)


@case
async def the_window_of_waiting_chains(store: Store) -> None:
    """With a window, a waiting chain matches if it is young enough."""
    first = await started(store, WAITING)
    await found(store, key("k", scope="waiting", window=HOUR), first)
    await started(store, key("k", scope="waiting", window=0))


@driver_case
async def a_chain_that_is_found_waits_for_the_transaction(store: Store) -> None:
    """A chain found with the scope "waiting" is not claimed before the transaction ends."""
    first = await started(store, WAITING)
    other = await store.second()
    async with store.transaction() as tx:
        (made,) = await store.create(new_job(dedup=WAITING), tx=tx)
        equal(made.chain_id, first, "the chain that was found")
        if not store.single_writer:
            equal((await other.claim()).jobs, [], "claimed jobs while the transaction is open")
    equal((await store.claim_one()).job.id, first, "the job that is claimed afterwards")


# Debounce


@case
async def a_debounced_chain_is_replaced(store: Store) -> None:
    """The waiting chain gets what the later start has, waits anew, and stays the same chain."""
    job = debounced(input=b'"first"', priority=3, deadline=later(), trace_context="00-first")
    first = await fresh(store, job)
    equal((first.status, first.ready, first.replaced), ("pending", False, False), "the first start")
    before = await store.job(job.id)
    equal(before.scheduled_at - before.created_at, timedelta(seconds=MINUTE), "the time it waits")
    after = await collapsed(store, debounced(input=b'"second"', priority=5), job.id, replaced=True)
    equal((after.input, after.priority, after.deadline), (b'"second"', 5, None), "input, priority and deadline")
    equal((after.created_at, after.trace_context), (before.created_at, "00-first"), "what stays")
    check(after.scheduled_at >= before.scheduled_at, "it must wait anew")
    equal(len(await store.list_jobs()), 1, "stored jobs")


@case
async def a_debounced_chain_is_postponed(store: Store) -> None:
    """With "postpone" only the time of the waiting chain changes."""
    job = debounced("postpone", input=b'"first"', priority=3)
    await fresh(store, job)
    row = await collapsed(store, debounced("postpone", wait=2 * MINUTE, input=b'"second"'), job.id, replaced=False)
    equal((row.input, row.priority), (b'"first"', 3), "input and priority")
    check(row.scheduled_at >= row.created_at + timedelta(seconds=2 * MINUTE), "it must wait anew")


@driver_case
async def a_debounced_chain_waits_at_most_for_the_window(store: Store) -> None:
    """The end of the window is the latest time. An older chain is not found."""
    job = debounced()
    await fresh(store, job)
    row = await collapsed(store, debounced(wait=HOUR, at_most=HOUR), job.id, replaced=True)
    equal(row.scheduled_at - row.created_at, timedelta(seconds=HOUR), "the latest time")
    row = await collapsed(store, debounced(wait=0, at_most=HOUR), job.id, replaced=True)
    check(row.scheduled_at < row.created_at + timedelta(seconds=MINUTE), "it may become due earlier")
    equal((await store.claim_one()).job.input, row.input, "it can be claimed")
    second = debounced(wait=0, at_most=0)
    await fresh(store, second)
    await fresh(store, debounced(wait=0, at_most=0))


@case
async def a_debounced_chain_that_has_begun(store: Store) -> None:
    """A chain that is running, failed or cancelled is not changed: the next start starts one."""
    for ending in ("running", "again", "cancelled"):
        job = debounced(wait=0)
        await fresh(store, job)
        if ending == "cancelled":
            await store.cancel(job.id)
        else:
            claimed = await store.claim_one()
            if ending == "again":
                await store.settle(put_back(claimed, schedule=later()))
        before = await store.job(job.id)
        following = debounced(input=b'"next"')
        await fresh(store, following)
        equal(await store.job(job.id), before, f"the chain that is {ending}")
        await store.cancel(following.id)


@case
async def a_chain_with_blockers_is_not_changed(store: Store) -> None:
    """A chain that waits, or waited, for others is not found by a debounced start."""
    source = await store.start("source")
    await store.create(new_job(dedup=key("k"), blockers=waiting_for(source, chain_type="source")))
    second = debounced()
    await fresh(store, second)
    await collapsed(store, debounced(), second.id, replaced=True)
    await store.cancel(second.id)
    last = new_job(dedup=key("k"), blockers=waiting_for(source, chain_type="source"))
    await fresh(store, last)
    await store.finish(source)
    equal(await store.statuses(last.id), ["pending"], "it is free")
    await fresh(store, debounced())


@driver_case
async def a_held_chain_is_replaced_later(store: Store) -> None:
    """With "hold" nothing is written, until `replace_waiting`."""
    job = debounced("hold", input=b"[1]")
    await fresh(store, job)
    before = await store.job(job.id)
    async with store.transaction() as tx:
        again = debounced("hold", input=b"[2]", priority=7, wait=2 * MINUTE)
        (made,) = await store.create(again, tx=tx)
        equal((present(made.existing, "existing").first, made.replaced), (before, False), "the chain that is held")
        merged = debounced("hold", id=job.id, input=b"[1,2]", priority=7, wait=2 * MINUTE)
        (chain,) = await store.replace_waiting(merged, tx=tx)
    row = await store.job(job.id)
    equal((chain.first, chain.current), (row, row), "the chain as it is stored")
    equal((row.input, row.priority, row.created_at), (b"[1,2]", 7, before.created_at), "input, priority and start")
    check(row.scheduled_at >= row.created_at + timedelta(seconds=2 * MINUTE), "it must wait anew")
    equal(await store.replace_waiting(), [], "nothing to replace")


@driver_case
async def several_keys_of_one_call(store: Store) -> None:
    """Some chains may be replaced, others found or stored. Each is returned in its place."""
    one, two = debounced(), new_job(dedup=key("two"))
    await store.create(one, two)
    jobs = [
        new_job(dedup=key("two", scope="waiting"), blockers=waiting_for(one.id)),
        debounced(input=b"2"),
        new_job(dedup=key("three", scope="waiting"), blockers=waiting_for(one.id, two.id)),
        new_job("other", dedup=key("k", scope="waiting", window=HOUR), collapse="replace"),
    ]
    created = await store.create(*jobs)
    equal([made.chain_id for made in created], [two.id, one.id, jobs[2].id, jobs[3].id], "chains")
    equal([made.replaced for made in created], [False, True, False, False], "replaced")
    equal((await store.job(one.id)).input, b"2", "input")
    equal((await store.job(jobs[2].id)).blockers_left, 2, "blockers of the new chain")


@case
async def a_replacement_that_is_rolled_back(store: Store) -> None:
    """After a rollback the waiting chain is as it was."""
    job = debounced(wait=0, input=b"1")
    await fresh(store, job)
    before = await store.job(job.id)
    async with store.rolled_back() as tx:
        await store.create(debounced(input=b"2"), tx=tx)
    async with store.transaction() as tx, store.undone(tx):
        await store.create(debounced(input=b"3"), tx=tx)
    equal(await store.job(job.id), before, "the job")
    equal((await store.claim_one()).job.input, b"1", "what is claimed")


# Throttle


@case
async def a_throttled_start_is_due_when_the_period_ends(store: Store) -> None:
    """The first chain is due at once, the second one period later. Further ones replace it."""
    job = throttled(input=b"1")
    check((await fresh(store, job)).ready, "the first must be due")
    second = throttled(input=b"2")
    check(not (await fresh(store, second)).ready, "the second must wait")
    first, row = await store.job(job.id), await store.job(second.id)
    equal(row.scheduled_at - first.created_at, timedelta(seconds=HOUR), "when the second is due")
    again = await collapsed(store, throttled(input=b"3", priority=9), second.id, replaced=True)
    equal((again.input, again.priority, again.scheduled_at), (b"3", 9, row.scheduled_at), "input, priority, time")
    equal((await store.job(job.id)).input, b"1", "the input of the first")


@driver_case
async def periods_follow_each_other(store: Store) -> None:
    """A period begins when its chain is due, whatever becomes of the chain."""
    first, second = throttled(0.4), throttled(0.4)
    await store.create(first)
    await store.create(second)
    await store.finish(first.id)
    due = (await store.job(second.id)).scheduled_at
    await store.elapse(0.45)
    third = throttled()
    await fresh(store, third)
    equal((await store.job(third.id)).scheduled_at, due + timedelta(seconds=HOUR), "the next period")
    await store.cancel(third.id)
    fourth = throttled(input=b"4")
    await fresh(store, fourth)
    equal((await store.job(fourth.id)).scheduled_at, due + timedelta(seconds=HOUR), "instead of the cancelled one")
    check((await fresh(store, throttled(0, type_name="other"))).ready, "another type has a key of its own")


@case
async def a_throttled_chain_that_was_triggered(store: Store) -> None:
    """The second chain runs early: the next one is due when the second should have been."""
    first, second, third = throttled(), throttled(), throttled()
    await store.create(first)
    await store.finish(first.id)
    await store.create(second)
    due = (await store.job(second.id)).scheduled_at
    await store.trigger(second.id)
    await store.claim_one()
    await fresh(store, third)
    equal((await store.job(third.id)).scheduled_at, due, "when the third is due")


@case
async def a_deleted_chain_begins_no_period(store: Store) -> None:
    """Deleting the chain that has the key frees it."""
    job = throttled()
    await fresh(store, job)
    await store.delete(job.id)
    check((await fresh(store, throttled())).ready, "the next must be due")
