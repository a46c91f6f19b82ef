"""Listings with a `Filter`, on every database and through both clients."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from tests.support.jobs import After, Charge, Greet, Nothing, Rate, Reserve
from tests.support.naming import short
from tests.support.worlds import START, World, claim, complete, fail, start

import queuert
from queuert import EntryJob, Filter, InvalidArgument, InvalidCursor, JobTypeMismatch
from queuert.client.client import Client
from queuert.errors import UnknownJobType
from queuert.records.listings import EXAMINED_AT_ONCE


class Mail(EntryJob[None], name="mail", queue="post"):
    to: str = "you"


class Parcel(EntryJob[None], name="parcel", queue="post"):
    weight: int = 1


async def ids(listing: Any) -> list[str]:
    return [each.id for each in (await listing).items]


@pytest.mark.drivers
async def test_several_statuses_and_types(client: Client[Any], world: World) -> None:
    failed = await start(client, Greet())
    await fail(client, failed)
    rate = await start(client, Rate())
    done = await start(client, Greet())
    await complete(client, done, "hi")
    assert await ids(client.list_chains(status=["failed", "completed"])) == [failed.id, done.id]
    assert await ids(client.list_jobs([Greet, "rate"], status=("failed", "pending"))) == [failed.id, rate.id]
    assert await ids(client.list_chains(where=Filter(type=["greet", Rate]))) == [failed.id, rate.id, done.id]
    assert await ids(client.list_chains(where="status:failed,pending")) == [failed.id, rate.id]
    assert await ids(client.list_jobs(status=[])) == []


@pytest.mark.drivers
async def test_jobs_by_chain_type_and_chains_by_job(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=1))
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    await start(client, Greet())
    (charge,) = (await client.list_jobs(Charge)).items
    assert await ids(client.list_jobs(where=Filter(chain_type=Reserve))) == [order.id, charge.id]
    assert await ids(client.list_jobs(Charge, where=Filter(chain_type=Reserve))) == [charge.id]
    assert await ids(client.list_chains(where=Filter(job=charge))) == [order.id]
    assert await ids(client.list_chains(where=f"job:{charge.id}")) == [order.id]
    assert await ids(client.list_chains(where=Filter(type=Charge))) == [order.id]
    assert await ids(client.list_jobs(where=Filter(chain=order))) == [order.id, charge.id]
    assert await ids(client.list_jobs(where=Filter(chain=order), order="desc")) == [charge.id, order.id]
    assert [job.id async for job in client.iter_jobs(where=Filter(chain=order), page_size=1)] == [order.id, charge.id]
    for nobody in ("nobody", "00000000-0000-7000-8000-000000000000"):
        assert await ids(client.list_jobs(where=Filter(chain=nobody))) == []
        assert await ids(client.list_chains(where=Filter(job=nobody))) == []


@pytest.mark.drivers
async def test_errors_keys_and_times(client: Client[Any], world: World) -> None:
    broken = await start(client, Greet(), dedup="k")
    await fail(client, broken)
    world.pass_time(10)
    other = await start(client, Greet())
    code = (await client.get_chain(broken)).last_error["code"]  # type: ignore[union-attr, index]
    assert await ids(client.list_chains(where=Filter(error=code))) == [broken.id]
    assert await ids(client.list_chains(where=Filter(error="NONE"))) == []
    assert await ids(client.list_chains(where=Filter(key="k"))) == [broken.id]
    assert await ids(client.list_jobs(where=Filter(key=["k", "l"]))) == [broken.id]
    assert await ids(client.list_chains(where=Filter(key="k", chain_type=Rate))) == []
    made = (await client.get_chain(other)).created_at  # type: ignore[union-attr]
    assert made is not None
    assert made == START + timedelta(seconds=10)
    assert await ids(client.list_jobs(where=Filter(ended=(None, made)))) == [broken.id]
    assert await ids(client.list_jobs(where=Filter(created=(made, None)))) == [other.id]
    assert await ids(client.list_jobs(created_after=made)) == []
    assert await ids(client.list_jobs(where=Filter(created=(None, made)), created_before=made)) == [broken.id]
    assert await ids(client.list_jobs(where=Filter(ended=(made, None)))) == []


async def test_keywords_and_filter_must_both_match(client: Client[Any]) -> None:
    first = await start(client, Greet())
    second = await start(client, Rate())
    everything = Filter(status="pending", chain=[first.id, second.id])
    assert await ids(client.list_chains(Greet, where=everything)) == [first.id]
    assert await ids(client.list_chains(where=everything, ids=[second.id])) == [second.id]
    assert await ids(client.list_chains(where=everything, status="failed")) == []
    assert await ids(client.list_jobs(Rate, where=Filter(type=Greet))) == []
    assert await ids(client.list_jobs(where=Filter(job=first.id), ids=[second.id])) == []


async def test_a_queue_is_the_types_that_the_classes_put_there() -> None:
    async with queuert.connect("memory://", jobs=[Mail, Parcel, Greet]) as client:
        mail, parcel, greeting = await client.submit_many([Mail(), Parcel(), Greet()])
        assert await ids(client.list_jobs(where="queue:post")) == [mail.id, parcel.id]
        assert await ids(client.list_chains(where=Filter(queue="default"))) == [greeting.id]
        assert await ids(client.list_jobs(Mail, where=Filter(queue="post"))) == [mail.id]
        assert await ids(client.list_jobs(where=Filter(queue=["post", "default"]))) == [
            mail.id, parcel.id, greeting.id
        ]  # fmt: skip
        assert await ids(client.list_jobs(where=Filter(queue="none"))) == []


@pytest.mark.drivers
async def test_a_page_that_finds_little_ends_early_and_goes_on(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        await client.start_many(tx, [Greet() for _ in range(EXAMINED_AT_ONCE)])
    wanted = await start(client, Rate())
    page = await client.list_jobs(where=Filter(chain_type=Rate))
    assert list(page.items) == []
    assert page.next_cursor is not None
    assert await ids(client.list_jobs(where=Filter(chain_type=Rate), cursor=page.next_cursor)) == [wanted.id]
    assert [each.id async for each in client.iter_jobs(where=Filter(chain_type=Rate))] == [wanted.id]
    assert await ids(client.list_jobs(where=Filter(chain_type=Rate), order="desc")) == [wanted.id]


async def test_a_cursor_belongs_to_its_order(client: Client[Any]) -> None:
    chain = await start(client, Greet())
    other = await start(client, Greet())
    where = Filter(chain=[chain, other])
    by_chain = (await client.list_jobs(where=where, limit=1)).next_cursor
    assert await ids(client.list_jobs(where=where, cursor=by_chain)) == [other.id]
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_jobs(cursor=by_chain)
    by_id = (await client.list_jobs(limit=1)).next_cursor
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_jobs(where=where, cursor=by_id)
    by_type = (await client.list_chains(where=Filter(type=Greet), limit=1)).next_cursor
    with pytest.raises(InvalidCursor, match="another listing"):
        await client.list_chains(cursor=by_type)


@pytest.mark.parametrize(
    "where", [7, ["status:failed"], {"status": "failed"}, "stauts:failed", "status:done"], ids=short
)
async def test_what_is_no_filter(client: Client[Any], where: Any) -> None:
    for listing in (client.list_jobs, client.list_chains):
        with pytest.raises(InvalidArgument, match=r"Filter|status|word"):
            await listing(where=where)
    for iterate in (client.iter_jobs, client.iter_chains):
        with pytest.raises(InvalidArgument, match=r"Filter|status|word"):
            iterate(where=where)


async def test_types_that_are_no_types(client: Client[Any]) -> None:
    wrong: Any = [7]
    with pytest.raises(InvalidArgument, match="job class"):
        await client.list_jobs(wrong)
    unregistered: list[Any] = [Greet, Mail]
    with pytest.raises(UnknownJobType):
        await client.list_jobs(unregistered)
    assert await ids(client.list_jobs([])) == []


# Types that are checked


@pytest.mark.drivers
async def test_a_type_that_does_not_fit_is_an_error(client: Client[Any], world: World) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    assert await ids(client.list_chain_jobs(greeting, Greet)) == [greeting.id]
    assert await ids(client.list_chain_jobs(greeting.id, "greet", limit=1)) == [greeting.id]
    assert await ids(client.list_blocked_jobs(greeting, Greet)) == [after.id]
    assert await client.get_blockers(after.id, After) == [greeting]
    for call in (
        client.list_chain_jobs(greeting, Rate),
        client.list_blocked_jobs(greeting, "rate"),
        client.get_blockers(after.id, Greet),
        client.wait(greeting.id, Rate, timeout=45),
    ):
        with pytest.raises(JobTypeMismatch, match=r"greet|after"):
            await call
    nobody = "00000000-0000-7000-8000-000000000000"
    assert await ids(client.list_chain_jobs(nobody, Rate)) == []
    assert await ids(client.list_blocked_jobs(nobody, Rate)) == []
    assert await client.get_blockers(nobody, Rate) is None


@pytest.mark.drivers
async def test_a_chain_has_its_input(client: Client[Any], world: World) -> None:
    order = await start(client, Reserve(order_id=7), dedup="k")
    assert order.input == {"order_id": 7}
    again = await start(client, Reserve(order_id=8), dedup="k")
    assert (again.deduplicated, again.input) == (True, {"order_id": 7})
    await complete(client, order, Charge(order_id=1, amount=Decimal(1)))
    found = await client.get_chain(order)
    assert found is not None
    assert found.input == {"order_id": 7}
    assert [chain.input for chain in (await client.list_chains()).items] == [{"order_id": 7}]
    after = await start(client, After(greeting=await start(client, Greet())))
    blockers = await client.get_blockers(after.id)
    assert blockers is not None
    assert [chain.input for chain in blockers] == [None]


@pytest.mark.drivers
async def test_a_chain_that_is_not_there_cannot_be_deleted_and_is_left_out(client: Client[Any], world: World) -> None:
    chain = await start(client, Nothing())
    nobody = "00000000-0000-7000-8000-000000000000"
    async with client.transaction() as tx:
        assert await client.delete(tx, [nobody, "nobody"]) == []
        assert await client.delete(tx, [nobody, chain, "nobody"], cascade=True) == [chain]
        assert await client.delete(tx, chain) == []
    assert await claim(client) == []


async def test_a_type_means_all_its_versions_and_names(world: World) -> None:
    class Old(EntryJob[None], name="pay"):
        pass

    class New(EntryJob[None], name="charge", version=2, aliases=["pay"]):
        pass

    async with world.client([Old]) as client:
        old = await start(client, Old())
    async with world.client([New]) as client:
        new = await start(client, New())
        for where in (Filter(type=New), "type:charge", "type:pay", Filter(chain_type="charge"), "chain-type:pay"):
            assert await ids(client.list_jobs(where=where)) == [old.id, new.id]
            assert await ids(client.list_chains(where=where)) == [old.id, new.id]
        assert await ids(client.list_jobs(where="type:charge@2")) == [new.id], "one version by its name"
        assert await ids(client.list_jobs(New, where="type:pay")) == [old.id, new.id]
        plan = await client.plan("cancel", "type:charge")
        assert (plan.number, plan.types) == (2, {"charge@2": 1, "pay": 1})
