"""Changing chains from outside: trigger, retry, cancel, delete. All of them, or an error and none."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.support.jobs import After, Charge, Close, Greet, Nothing, Rate, Receipt, Report, Reserve
from tests.support.worlds import START, World, claim, complete, fail, start, status_of, try_to_end

from queuert import EntryJob, Limit
from queuert.client.client import Client
from queuert.errors import ChainInUse, ChainNotFound, ChainNotRetryable, ChainNotTriggerable, InvalidArgument
from queuert.jobs import Chain

# Trigger


async def test_trigger_makes_a_chain_due(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet(), after=3600)
    world.heard.clear()
    world.pass_time(10)
    async with client.transaction() as tx:
        (triggered,) = await client.trigger(tx, chain)
        assert (triggered.id, triggered.status) == (chain.id, "pending")
    assert world.heard == [("job_scheduled", "greet")]
    job = await client.get_job(chain.id)
    assert job is not None
    assert job.scheduled_at == START + timedelta(seconds=10)
    assert [each.job.id for each in await claim(client, "greet")] == [chain.id]


async def test_trigger_leaves_what_is_due_as_it_is(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    world.pass_time(10)
    async with client.transaction() as tx:
        await client.trigger(tx, chain.id)
    job = await client.get_job(chain.id)
    assert job is not None
    assert job.scheduled_at == START


async def test_trigger_takes_the_current_job_of_the_chain(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)).set(after=60))
    assert await claim(client, "charge") == []
    async with client.transaction() as tx:
        await client.trigger(tx, order)
    assert [each.job.chain_id for each in await claim(client, "charge")] == [order.id]


async def test_trigger_is_all_or_nothing(client: Client[Any], world: World) -> None:
    later = await start(client, Greet(), after=60)
    blocked = await start(client, After(greeting=later))
    world.heard.clear()
    before = world.snapshot()
    async with client.transaction() as tx:
        with pytest.raises(ChainNotTriggerable) as caught:
            await client.trigger(tx, [later, blocked])
        with pytest.raises(ChainNotFound):
            await client.trigger(tx, [later, "nobody"])
    assert (caught.value.chain_id, caught.value.status) == (blocked.id, "blocked")
    assert (world.snapshot(), world.heard) == (before, [])


async def test_trigger_refuses_what_runs_or_has_ended(client: Client[Any]) -> None:
    running = await start(client, Greet())
    await claim(client, "greet")
    done = await start(client, Nothing())
    await complete(client, done, None)
    async with client.transaction() as tx:
        for chain, status in ((running, "running"), (done, "completed")):
            with pytest.raises(ChainNotTriggerable, match=status):
                await client.trigger(tx, chain)


async def test_naming_a_chain_twice_counts_once(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet(), after=60)
    while world.hub.consume("greet"):
        pass
    async with client.transaction() as tx:
        assert len(await client.trigger(tx, [chain, chain.id])) == 1
    assert world.hub.consume("greet")
    assert not world.hub.consume("greet")
    await fail(client, chain)
    async with client.transaction() as tx:
        assert [each.status for each in await client.retry(tx, [chain, chain])] == ["pending"]
        assert [each.status for each in await client.cancel(tx, [chain, chain])] == ["cancelled"]
        assert len(await client.delete(tx, [chain, chain])) == 1


@pytest.mark.parametrize("operation", ["trigger", "retry", "cancel", "delete"])
async def test_no_chains_at_all(client: Client[Any], operation: str) -> None:
    async with client.transaction() as tx:
        assert await getattr(client, operation)(tx, []) == []


@pytest.mark.parametrize("operation", ["trigger", "retry", "cancel"])
async def test_chains_that_are_not_there(client: Client[Any], operation: str) -> None:
    async with client.transaction() as tx:
        with pytest.raises(ChainNotFound) as caught:
            await getattr(client, operation)(tx, "nobody")
    assert caught.value.chain_id == "nobody"


# Retry


async def test_retry_gives_new_attempts_from_where_the_chain_stopped(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    job = await fail(client, order, "no money")
    world.heard.clear()
    world.pass_time(5)
    async with client.transaction() as tx:
        (retried,) = await client.retry(tx, order)
        assert (retried.status, retried.current_job_type) == ("pending", "charge")
    assert world.heard == [("job_scheduled", "charge")]
    record = await client.get_job(job.id)
    assert record is not None
    assert (record.attempt_number, record.scheduled_at) == (0, START + timedelta(seconds=5))
    assert (record.completed_at, record.completed_by) == (None, None)
    assert record.last_error is not None
    assert record.last_error["message"] == "no money"
    await complete(client, order, Receipt("p"))
    assert await status_of(client, order) == "completed"


async def test_retry_is_all_or_nothing(client: Client[Any], world: World) -> None:
    failed = await start(client, Greet())
    await fail(client, failed)
    pending = await start(client, Greet())
    world.heard.clear()
    before = world.snapshot()
    async with client.transaction() as tx:
        with pytest.raises(ChainNotRetryable) as caught:
            await client.retry(tx, [failed, pending])
    assert (caught.value.chain_id, caught.value.status) == (pending.id, "pending")
    assert (world.snapshot(), world.heard) == (before, [])


async def test_only_failed_chains_are_retried(client: Client[Any]) -> None:
    cancelled = await start(client, Greet())
    async with client.transaction() as tx:
        await client.cancel(tx, cancelled)
        with pytest.raises(ChainNotRetryable, match="cancelled"):
            await client.retry(tx, cancelled)


# Cancel


async def test_cancel_ends_a_chain(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    world.heard.clear()
    world.pass_time(5)
    async with client.transaction() as tx:
        (cancelled,) = await client.cancel(tx, chain)
        assert (cancelled.status, cancelled.completed_at) == ("cancelled", START + timedelta(seconds=5))
    assert world.heard == [("chain_ended", chain.id)]
    assert await status_of(client, chain) == "cancelled"
    assert await claim(client, "greet") == []


async def test_cancelling_a_running_job_tells_its_worker(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    (claimed,) = await claim(client, "greet")
    world.heard.clear()
    async with client.transaction() as tx:
        await client.cancel(tx, chain)
    assert world.heard == [("ownership_lost", chain.id), ("chain_ended", chain.id)]
    assert not await try_to_end(client, claimed.job, "completed", output=b'"late"')
    assert await status_of(client, chain) == "cancelled"


async def test_workers_are_told_of_a_key_that_may_go_on(world: World) -> None:
    """What is cancelled or deleted may have held the key of a limit."""

    class Post(EntryJob[None], name="post", limit=Limit(by="account", concurrency=1, ordered=True)):
        account: str

    async with world.client([Post]) as client:
        chain = await start(client, Post(account="x"))
        for change in (client.cancel, client.delete):
            world.heard.clear()
            async with client.transaction() as tx:
                await change(tx, chain)
            assert sorted(world.heard) == [("chain_ended", chain.id), ("job_scheduled", "post")]


async def test_cancel_passes_over_what_has_ended(client: Client[Any], world: World) -> None:
    done, pending = await start(client, Greet()), await start(client, Greet())
    await complete(client, done, "hi")
    world.heard.clear()
    async with client.transaction() as tx:
        assert [chain.id for chain in await client.cancel(tx, [done, pending])] == [pending.id]
        assert await client.cancel(tx, [done, pending]) == []
    assert await status_of(client, done) == "completed"
    assert world.heard == [("chain_ended", pending.id)]


async def test_cancel_leaves_those_who_wait_blocked(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        await client.cancel(tx, greeting)
    assert await status_of(client, after) == "blocked"


async def test_cascade_cancels_upward_through_all_levels(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    rate = await start(client, Rate())
    books = await start(client, Close(day="mon", order=order, rates=[rate]))
    other = await start(client, Close(day="tue", order=order, rates=[]))
    untouched = await start(client, Greet())
    world.heard.clear()
    async with client.transaction() as tx:
        cancelled = await client.cancel(tx, order, cascade=True)
    assert {chain.id for chain in cancelled} == {order.id, books.id, other.id}
    assert {chain.status for chain in cancelled} == {"cancelled"}
    assert await status_of(client, rate) == "pending"
    assert await status_of(client, untouched) == "pending"
    assert {value for _, value in world.heard} == {order.id, books.id, other.id}


async def test_cascade_follows_a_job_that_waits_later_in_its_chain(client: Client[Any]) -> None:
    order, rate = await start(client, Reserve(order_id=1)), await start(client, Rate())
    books = await start(client, Close(day="mon", order=order, rates=[]))
    await complete(client, order, Receipt("p"))
    await complete(client, books, Report(day="mon", rate=rate))
    assert await status_of(client, books) == "blocked"
    async with client.transaction() as tx:
        cancelled = await client.cancel(tx, rate, cascade=True)
    assert {chain.id for chain in cancelled} == {rate.id, books.id}


async def test_cascade_from_an_ended_chain_frees_those_who_wait_in_vain(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    await fail(client, greeting)
    async with client.transaction() as tx:
        cancelled = await client.cancel(tx, greeting, cascade=True)
    assert [chain.id for chain in cancelled] == [after.id]
    assert await status_of(client, greeting) == "failed"


async def test_cascade_over_more_than_one_page_of_dependents(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    async with client.transaction() as tx:
        await client.start_many(tx, [After(greeting=greeting) for _ in range(501)])
        cancelled = await client.cancel(tx, greeting, cascade=True)
    assert len(cancelled) == 502


async def test_cancelling_what_only_these_chains_wait_for(client: Client[Any], world: World) -> None:
    """Downward through all levels. What another chain waits for stays, with all that it waits for."""
    order, shared, rate = (
        await start(client, Reserve(order_id=1)),
        await start(client, Rate()),
        await start(client, Rate()),
    )
    books = await start(client, Close(day="mon", order=order, rates=[shared, rate]))
    other = await start(client, Close(day="tue", order=await start(client, Reserve(order_id=2)), rates=[shared]))
    ended = await start(client, Greet())
    await complete(client, ended, "done")
    world.heard.clear()
    async with client.transaction() as tx:
        cancelled = await client.cancel(tx, books, cascade="blockers")
    assert [chain.id for chain in cancelled] == [books.id, *sorted([order.id, rate.id])]
    assert await status_of(client, shared) == "pending"
    assert await status_of(client, other) == "blocked"
    assert {value for _, value in world.heard} == {order.id, books.id, rate.id}


async def test_cancelling_both_chains_that_wait_cancels_what_they_share(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    one, two = await start(client, After(greeting=greeting)), await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        assert [chain.id for chain in await client.cancel(tx, one, cascade="blockers")] == [one.id]
    assert await status_of(client, greeting) == "pending"
    async with client.transaction() as tx:
        assert [chain.id for chain in await client.cancel(tx, two, cascade="blockers")] == [two.id, greeting.id]


async def test_dependents_is_the_other_word_for_true(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        cancelled = await client.cancel(tx, greeting, cascade="dependents")
        assert {chain.id for chain in cancelled} == {greeting.id, after.id}
        wrong: Any = "children"
        for change in (client.cancel, client.delete):
            with pytest.raises(InvalidArgument, match="got 'children'"):
                await change(tx, greeting, cascade=wrong)
        assert len(await client.delete(tx, after, cascade="blockers")) == 2


async def test_a_rolled_back_cancel_announces_nothing(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    world.heard.clear()
    before = world.snapshot()
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await client.cancel(tx, chain, cascade=True)
            raise ZeroDivisionError
    assert (world.snapshot(), world.heard) == (before, [])


# Delete


async def test_delete_removes_a_chain_with_all_its_jobs(client: Client[Any], world: World) -> None:
    empty = world.snapshot(statistics=False)  # what happened to its jobs stays counted
    order = await start(client, Reserve(order_id=1), dedup="k")
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    world.heard.clear()
    async with client.transaction() as tx:
        (deleted,) = await client.delete(tx, order)
        assert (deleted.id, deleted.status, deleted.current_job_type) == (order.id, "pending", "charge")
    assert world.heard == [("chain_ended", order.id)]
    assert world.count() == 0
    assert world.snapshot(statistics=False) == empty
    assert await client.get_chain(order) is None


async def test_delete_passes_over_what_is_not_there(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    async with client.transaction() as tx:
        assert [each.id for each in await client.delete(tx, ["nobody", chain])] == [chain.id]
        assert await client.delete(tx, chain) == []
    assert world.count() == 0


async def test_deleting_a_running_job_tells_its_worker(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    await claim(client, "greet")
    world.heard.clear()
    async with client.transaction() as tx:
        await client.delete(tx, chain)
    assert world.heard == [("ownership_lost", chain.id), ("chain_ended", chain.id)]


async def test_delete_refuses_what_others_wait_for_and_says_who(client: Client[Any], world: World) -> None:
    greeting, alone = await start(client, Greet()), await start(client, Greet())
    waiting = [await start(client, After(greeting=greeting)) for _ in range(2)]
    world.heard.clear()
    before = world.snapshot()
    async with client.transaction() as tx:
        with pytest.raises(ChainInUse, match="nothing was deleted") as caught:
            await client.delete(tx, [alone, greeting])
    assert {chain: list(jobs) for chain, jobs in caught.value.waiting.items()} == {
        greeting.id: [chain.id for chain in waiting]
    }
    assert caught.value.chain_id == greeting.id
    assert all(chain.id in str(caught.value) for chain in waiting)
    assert (world.snapshot(), world.heard) == (before, [])


async def test_deleting_both_sides_at_once_works(client: Client[Any], world: World) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        deleted = await client.delete(tx, [greeting, after])
    assert [chain.id for chain in deleted] == [greeting.id, after.id]
    assert world.count() == 0


@pytest.mark.parametrize(
    ("ending", "in_use"), [("pending", True), ("failed", True), ("completed", False), ("cancelled", False)]
)
async def test_who_still_needs_a_blocker(client: Client[Any], ending: str, in_use: bool) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    await complete(client, greeting, "hi")
    if ending == "failed":
        await fail(client, after)
    elif ending == "completed":
        await complete(client, after, None)
    elif ending == "cancelled":
        async with client.transaction() as tx:
            await client.cancel(tx, after)
    assert await status_of(client, after) == ending
    async with client.transaction() as tx:
        if in_use:
            with pytest.raises(ChainInUse):
                await client.delete(tx, greeting)
        else:
            assert [chain.id for chain in await client.delete(tx, greeting)] == [greeting.id]
    assert (await client.get_chain(greeting) is None) == (not in_use)


async def test_cascade_deletes_downward(client: Client[Any], world: World) -> None:
    order, rates = await start(client, Reserve(order_id=1)), [await start(client, Rate()) for _ in range(2)]
    books = await start(client, Close(day="mon", order=order, rates=rates))
    other = await start(client, Greet())
    async with client.transaction() as tx:
        deleted = await client.delete(tx, books, cascade=True)
    assert deleted[0].id == books.id
    assert {chain.id for chain in deleted} == {books.id, order.id, *(rate.id for rate in rates)}
    assert world.count() == 1
    assert await status_of(client, other) == "pending"


async def test_cascade_stops_at_what_others_need(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    books = await start(client, Close(day="mon", order=order, rates=[]))
    other = await start(client, Close(day="tue", order=order, rates=[]))
    before = world.snapshot()
    async with client.transaction() as tx:
        with pytest.raises(ChainInUse) as caught:
            await client.delete(tx, books, cascade=True)
    assert {chain: list(jobs) for chain, jobs in caught.value.waiting.items()} == {order.id: [other.id]}
    assert world.snapshot() == before


async def test_without_cascade_blockers_stay(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        await client.delete(tx, after)
    assert await status_of(client, greeting) == "pending"
    assert (await client.list_blocked_jobs(greeting)).items == []


async def test_a_later_job_cannot_be_deleted_as_a_chain(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    page = await client.list_chain_jobs(order)
    async with client.transaction() as tx:
        assert await client.delete(tx, page.items[1].id) == []
        for operation in (client.cancel, client.trigger, client.retry):
            with pytest.raises(ChainNotFound):
                await operation(tx, page.items[1].id)
    assert world.count() == 2


async def test_everything_at_once_in_one_transaction(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        first = await client.start(tx, Greet(), after=60)
        second: Chain[Any] = await client.start(tx, After(greeting=first))
        await client.trigger(tx, first)
        await client.cancel(tx, first, cascade=True)
        await client.delete(tx, [second, first])
        third = await client.start(tx, Greet(), id=first.id)
    assert (third.id, world.count()) == (first.id, 1)
