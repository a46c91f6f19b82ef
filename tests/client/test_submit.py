"""`submit` and `submit_many`: chains that start in a transaction of their own."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.jobs import Charge, Greet, Rate
from tests.support.worlds import START, World, status_of

from queuert.client.client import Client
from queuert.errors import (
    ClientClosed,
    InvalidArgument,
    JobIdExists,
    JobTypeValidationError,
    TransactionNested,
)


async def test_a_submitted_chain_is_committed_and_announced(client: Client[Any], world: World) -> None:
    chain = await client.submit(Greet(who="me"))

    assert (chain.chain_type, chain.status, chain.deduplicated) == ("greet", "pending", False)
    assert world.heard == [("job_scheduled", "greet")]
    record = await client.get_job(chain.id, Greet)
    assert record is not None
    assert (record.job, record.created_at) == (Greet(who="me"), START)


async def test_the_options_are_those_of_start(client: Client[Any]) -> None:
    first = await client.submit(Greet().set(priority=5), dedup="k", priority=7)
    again = await client.submit(Greet(), dedup="k")

    assert (again.id, again.deduplicated) == (first.id, True)
    record = await client.get_job(first.id)
    assert record is not None
    assert (record.priority, record.dedup_key) == (7, "k")


async def test_many_chains_of_several_types(client: Client[Any], world: World) -> None:
    chains = await client.submit_many([Greet(who="a").set(priority=3), Rate(currency="EUR"), Greet(who="b")])

    assert [chain.chain_type for chain in chains] == ["greet", "rate", "greet"]
    assert [chain.id for chain in (await client.list_chains()).items] == [chain.id for chain in chains]
    assert sorted(world.heard) == [("job_scheduled", "greet"), ("job_scheduled", "rate")]
    assert await client.submit_many([]) == []


async def test_all_of_many_or_none(client: Client[Any], world: World) -> None:
    taken = (await client.submit(Greet())).id
    world.heard.clear()
    with pytest.raises(JobIdExists):
        await client.submit_many([Rate(currency="EUR"), Greet().set(id=taken)])

    assert [chain.id for chain in (await client.list_chains()).items] == [taken]
    assert world.heard == []


@pytest.mark.parametrize("name", ["submit", "submit_many"])
async def test_inside_an_open_transaction_of_the_same_task(client: Client[Any], name: str) -> None:
    job: Any = Greet() if name == "submit" else [Greet()]
    async with client.transaction() as tx:
        outer = await client.start(tx, Greet())
        with pytest.raises(
            TransactionNested, match=rf"{name}\(\) opens .* client\.{name.replace('submit', 'start')}\(tx"
        ):
            await getattr(client, name)(job)

    # The transaction that was open is as good as before.
    assert await status_of(client, outer) == "pending"
    assert len((await client.list_chains()).items) == 1


async def test_after_a_transaction_has_ended(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        await client.start(tx, Greet())
    await client.submit(Greet())
    await client.submit_many([Greet()])
    assert len((await client.list_chains()).items) == 3


async def test_wrong_arguments(client: Client[Any]) -> None:
    with pytest.raises(InvalidArgument, match=r"submit\(\) has no keyword prority"):
        await client.submit(Greet(), prority=1)  # type: ignore[call-arg]
    with pytest.raises(JobTypeValidationError, match="EntryJob"):
        await client.submit(Charge(order_id=1, amount=1))  # type: ignore[type-var, arg-type]
    with pytest.raises(InvalidArgument, match=r"submit_many\(\) takes a list"):
        await client.submit_many(Greet())  # type: ignore[arg-type]
    assert (await client.list_chains()).items == []


async def test_a_closed_client(world: World) -> None:
    async with world.client() as client:
        pass
    with pytest.raises(ClientClosed):
        await client.submit(Greet())
