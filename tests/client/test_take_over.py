"""Settling a chain's current job without a worker."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from tests.support.jobs import After, Charge, Close, Greet, Nothing, Rate, Receipt, Report, Reserve, Send
from tests.support.naming import short
from tests.support.worlds import START, World, claim, complete, end, fail, start, status_of, try_to_end

from queuert.client.client import Client
from queuert.errors import (
    BlockerNotFound,
    ChainEnded,
    ChainNotFound,
    InvalidArgument,
    InvalidJobId,
    JobIdExists,
    JobTypeMismatch,
    JobTypeValidationError,
    TransactionClosed,
    UnknownJobType,
)
from queuert.jobs import Chain, EntryJob


class Stranger(EntryJob[None], name="stranger"):
    pass


async def test_a_typed_take_over_finishes_a_chain(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet(who="me"))
    world.heard.clear()
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        assert (current.job, current.status) == (Greet(who="me"), "pending")
        await current.settle("hello")
        assert current.status == "completed"
    assert world.heard == [("chain_ended", chain.id)]
    done = await client.get_chain(chain, Greet)
    assert done is not None
    assert (done.status, done.output, done.completed_at) == ("completed", "hello", START)
    job = await client.get_job(chain.id)
    assert job is not None
    assert (job.completed_by, job.attempt_number) == (None, 0)


async def test_a_continuation_becomes_the_current_job(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=7))
    world.heard.clear()
    async with client.transaction() as tx, client.take_over(tx, order, Reserve) as current:
        await current.settle(Charge(order_id=7, amount=Decimal(1)).set(priority=3, after=60))
        assert current.status == "pending"
    assert world.heard == [("job_scheduled", "charge")]
    page = await client.list_chain_jobs(order)
    assert [job.job_type for job in page.items] == ["reserve", "charge"]
    assert page.items[0].continued_to == page.items[1].id
    assert (page.items[1].priority, (page.items[1].scheduled_at - START).total_seconds()) == (3, 60)
    assert await claim(client, "charge") == []


async def test_several_steps_in_one_transaction(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=7))
    world.heard.clear()
    async with client.transaction() as tx:
        async with client.take_over(tx, order, Reserve) as current:
            await current.settle(Charge(order_id=7, amount=Decimal(1)))
        async with client.take_over(tx, order, Charge) as charge:
            assert charge.job.amount == Decimal(1)
            await charge.settle(Charge(order_id=7, amount=Decimal(2)))
        async with client.take_over(tx, order) as anything:
            assert anything.job == Charge(order_id=7, amount=Decimal(2))
            await anything.settle(Send(order_id=7, payment_id="p"))
            assert anything.job == Send(order_id=7, payment_id="p")
            await anything.settle(Receipt("p"))
            assert anything.status == "completed"
    assert [job.status for job in (await client.list_chain_jobs(order)).items] == ["completed"] * 4
    done = await client.get_chain(order, Reserve)
    assert done is not None
    assert done.output == Receipt("p")
    assert ("chain_ended", order.id) in world.heard


async def test_the_type_is_checked(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=7))
    async with client.transaction() as tx:
        with pytest.raises(JobTypeMismatch) as caught:
            async with client.take_over(tx, order, Charge):
                raise AssertionError("taken over")
        assert (caught.value.expected, caught.value.actual) == ("charge", "reserve")
        with pytest.raises(UnknownJobType):
            async with client.take_over(tx, order, Stranger):
                raise AssertionError("taken over")


async def test_a_typed_take_over_settles_one_job_only(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=7))
    async with client.transaction() as tx, client.take_over(tx, order, Reserve) as current:
        await current.settle(Charge(order_id=7, amount=Decimal(1)))
        with pytest.raises(JobTypeMismatch):
            await current.settle(Charge(order_id=7, amount=Decimal(2)))
    assert len((await client.list_chain_jobs(order)).items) == 2


async def test_settling_twice_is_refused(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        await current.settle("once")
        with pytest.raises(ChainEnded) as caught:
            await current.settle("twice")
    assert (caught.value.chain_id, caught.value.status) == (chain.id, "completed")
    done = await client.get_chain(chain, Greet)
    assert done is not None
    assert done.output == "once"


async def test_two_hands_on_one_job_settle_it_once(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=7))
    async with client.transaction() as tx, client.take_over(tx, order) as one, client.take_over(tx, order) as two:
        await one.settle(Charge(order_id=7, amount=Decimal(1)))
        before = (await client.list_chain_jobs(order, tx=tx)).items
        with pytest.raises(ChainEnded):
            await two.settle(Charge(order_id=7, amount=Decimal(2)))
        assert (await client.list_chain_jobs(order, tx=tx)).items == before
    assert world.count() == 2


async def test_a_job_that_was_cancelled_in_between_is_not_settled(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        await client.cancel(tx, chain)
        with pytest.raises(ChainEnded, match="cancelled"):
            await current.settle("too late")
        assert current.status == "cancelled"
    assert await status_of(client, chain) == "cancelled"


async def test_a_job_that_was_deleted_in_between_is_not_settled(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        await client.delete(tx, chain)
        with pytest.raises(ChainNotFound):
            await current.settle("too late")
    assert world.count() == 0


@pytest.mark.parametrize("ending", ["completed", "failed", "cancelled", "expired"])
async def test_an_ended_chain_cannot_be_taken_over(client: Client[Any], ending: str) -> None:
    chain = await start(client, Greet())
    if ending == "completed":
        await complete(client, chain, "hi")
    elif ending == "failed":
        await fail(client, chain)
    elif ending == "expired":
        (claimed,) = await claim(client, "greet")
        await end(client, claimed.job, "expired")
    else:
        async with client.transaction() as tx:
            await client.cancel(tx, chain)
    async with client.transaction() as tx:
        for types in ((), (Greet,)):
            with pytest.raises(ChainEnded) as caught:
                async with client.take_over(tx, chain, *types):
                    raise AssertionError("taken over")
            assert caught.value.status == ending


async def test_a_chain_that_is_not_there(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        with pytest.raises(ChainNotFound):
            async with client.take_over(tx, str(uuid4())):
                raise AssertionError("taken over")


async def test_leaving_without_settling_changes_nothing(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    world.heard.clear()
    before = world.snapshot()
    async with client.transaction() as tx, client.take_over(tx, chain, Greet):
        pass
    assert (world.snapshot(), world.heard) == (before, [])


async def test_an_error_in_the_block_goes_through(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    before = world.snapshot()
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
            await current.settle("hi")
            raise ZeroDivisionError
    assert world.snapshot() == before


async def test_a_rolled_back_settle_announces_nothing(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    world.heard.clear()
    async with client.transaction() as tx:
        with pytest.raises(ZeroDivisionError):
            async with client.savepoint(tx), client.take_over(tx, chain, Greet) as current:
                await current.settle("hi")
                raise ZeroDivisionError
    assert world.heard == []
    assert await status_of(client, chain) == "pending"


async def test_a_blocked_job_can_be_taken_over(client: Client[Any]) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx, client.take_over(tx, after, After) as current:
        assert current.status == "blocked"
        assert current.job.greeting == greeting
        assert current.job.greeting.status == "pending"
        await current.settle(None)
    assert await status_of(client, after) == "completed"
    # The blocker's own end later finds nobody to free.
    await complete(client, greeting, "hi")
    assert await status_of(client, after) == "completed"


async def test_outputs_of_blockers_can_be_read(client: Client[Any]) -> None:
    order, rates = await start(client, Reserve(order_id=1)), [await start(client, Rate()) for _ in range(2)]
    books = await start(client, Close(day="mon", order=order, rates=rates))
    await complete(client, order, Receipt("p"))
    await complete(client, rates[0], 1.5)
    async with client.transaction() as tx, client.take_over(tx, books, Close) as current:
        assert current.job.order.output == Receipt("p")
        assert current.job.rates[0].output == 1.5
        assert current.job.rates[1].status == "pending"


async def test_completing_frees_those_who_wait(client: Client[Any], world: World) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    world.heard.clear()
    await complete(client, greeting, "hi")
    assert await status_of(client, after) == "pending"
    assert set(world.heard) == {("chain_ended", greeting.id), ("job_scheduled", "after")}
    (claimed,) = await claim(client, "after")
    assert [(blocker.chain_id, blocker.output) for blocker in claimed.blockers] == [(greeting.id, b'"hi"')]


async def test_continuing_frees_nobody(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    books = await start(client, Close(day="mon", order=order, rates=[]))
    world.heard.clear()
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    assert await status_of(client, books) == "blocked"
    assert world.heard == [("job_scheduled", "charge")]


async def test_taking_a_job_from_a_running_worker(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    (claimed,) = await claim(client, "greet")
    world.heard.clear()
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        assert current.status == "running"
        await current.settle("mine")
    assert world.heard == [("ownership_lost", chain.id), ("chain_ended", chain.id)]
    assert not await try_to_end(client, claimed.job, "completed", output=b'"late"')
    done = await client.get_chain(chain, Greet)
    assert done is not None
    assert done.output == "mine"


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (7, "invalid_output"),
        (None, "invalid_output"),
        ("with \0", "invalid_output"),
        (object(), "invalid_output"),
        (b"bytes", "invalid_output"),
        (Nothing(), "invalid_continuation"),
        (Send(order_id=1, payment_id="p"), "invalid_continuation"),
        (Stranger(), "invalid_continuation"),
    ],
    ids=short,
)
async def test_an_invalid_result_leaves_nothing_half_written(
    client: Client[Any], world: World, result: Any, code: str
) -> None:
    chain = await start(client, Greet())
    world.heard.clear()
    before = world.snapshot()
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        with pytest.raises(JobTypeValidationError) as caught:
            await current.settle(result)
        assert (caught.value.code, caught.value.job_type) == (code, "greet")
        assert current.status == "pending"
    assert (world.snapshot(), world.heard) == (before, [])
    await complete(client, chain, "a better one")
    assert await status_of(client, chain) == "completed"


async def test_a_continuation_that_cannot_be_stored_leaves_the_job_open(client: Client[Any], world: World) -> None:
    order, other = await start(client, Reserve(order_id=1)), await start(client, Greet())
    ghost: Chain[Rate] = Chain(str(uuid4()), "rate")
    books = await start(client, Close(day="mon", order=order, rates=[]))
    world.heard.clear()
    before = world.snapshot()
    charge = Charge(order_id=1, amount=Decimal(1))
    async with client.transaction() as tx:
        async with client.take_over(tx, order, Reserve) as current:
            with pytest.raises(JobIdExists):
                await current.settle(charge.set(id=other.id))
            with pytest.raises(JobIdExists):
                await current.settle(charge.set(id=order.id))
            with pytest.raises(InvalidJobId):
                await current.settle(charge.set(id="nonsense"))
            with pytest.raises(InvalidArgument, match="deduplication"):
                await current.settle(charge.set(dedup="k"))
            with pytest.raises(JobTypeValidationError):
                await current.settle(Charge(order_id=1, amount=Decimal("NaN")))
            assert current.status == "pending"
        async with client.take_over(tx, books, Close) as closing:
            with pytest.raises(BlockerNotFound):
                await closing.settle(Report(day="mon", rate=ghost))
            with pytest.raises(BlockerNotFound):
                # A chain cannot wait for itself.
                await closing.settle(Report(day="mon", rate=Chain(books.id, "rate")))
    assert (world.snapshot(), world.heard) == (before, [])


async def test_a_continuation_may_wait_for_others(client: Client[Any], world: World) -> None:
    order, rate = await start(client, Reserve(order_id=1)), await start(client, Rate())
    books = await start(client, Close(day="mon", order=order, rates=[]))
    world.heard.clear()
    await complete(client, books, Report(day="mon", rate=rate))
    assert await status_of(client, books) == "blocked"
    assert world.heard == []
    await complete(client, rate, 2.5)
    async with client.transaction() as tx, client.take_over(tx, books, Report) as current:
        assert current.job.rate.output == 2.5
        await current.settle(3)
    done = await client.get_chain(books, Close)
    assert done is not None
    assert done.output == 3


async def test_a_completion_ends_with_its_transaction(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    async with client.transaction() as tx, client.take_over(tx, chain, Greet) as current:
        pass
    with pytest.raises(TransactionClosed):
        await current.settle("too late")
    assert await status_of(client, chain) == "pending"


async def test_a_chain_started_in_this_transaction_can_be_taken_over(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        chain = await client.start(tx, Greet())
        async with client.take_over(tx, chain, Greet) as current:
            await current.settle("at once")
    assert await client.wait(chain, timeout=45) == "at once"
    assert ("chain_ended", chain.id) in world.heard


async def test_the_id_of_a_later_job_is_no_chain(client: Client[Any]) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    second = (await client.list_jobs(Charge)).items[0]
    async with client.transaction() as tx:
        with pytest.raises(ChainNotFound):
            async with client.take_over(tx, second.id, Charge):
                raise AssertionError("taken over")
