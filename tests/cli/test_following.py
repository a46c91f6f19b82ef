"""Which chains `queuert tail` notices, look by look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.cli.incidents import JOBS, Bill, Charge, handlers

from queuert import Client, Filter, Worker, connect
from queuert.operate.cli import following
from queuert.operate.cli.following import Follower


@pytest.fixture
async def client() -> AsyncIterator[Client[Any]]:
    async with connect("memory://", jobs=JOBS) as client:
        yield client


async def seen(follower: Follower, *heard: str) -> list[tuple[str, str | None]]:
    return [(chain.id, chain.status) for chain in await follower.look(heard)]


async def test_each_change_is_seen_once(client: Client[Any]) -> None:
    old = await client.submit(Bill())
    follower = Follower(client, Filter())
    assert [chain.id for chain in await follower.begin(10)] == [old.id]
    assert await seen(follower) == []
    new = await client.submit(Charge(order=1))
    assert await seen(follower) == [(new.id, "pending")]
    assert await seen(follower) == []
    await Worker(client, handlers).drain()
    assert await seen(follower) == [(new.id, "completed")]
    async with client.transaction() as tx:
        await client.cancel(tx, old)
    assert await seen(follower) == [(old.id, "cancelled")]
    async with client.transaction() as tx:
        await client.delete(tx, old)
    assert await seen(follower) == []


async def test_a_chain_that_begins_to_match(client: Client[Any]) -> None:
    await client.submit(Charge(order=13))
    chain = await client.submit(Charge(order=13))
    await client.submit(Bill())
    follower = Follower(client, Filter.parse("status:failed type:charge-card error:CARD_DECLINED"))
    assert await follower.begin(0) == []
    await client.submit(Charge(order=1))
    assert await seen(follower) == []
    await Worker(client, handlers).drain()
    failed = await follower.look()
    assert [each.status for each in failed] == ["failed", "failed"]
    assert failed[-1].id == chain.id
    async with client.transaction() as tx:
        await client.retry(tx, chain)
    assert await seen(follower) == []
    await Worker(client, handlers).drain()
    assert await seen(follower) == [(chain.id, "failed")]


async def test_old_chains_are_noticed_by_what_is_heard(client: Client[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAGE", 2)
    old = await client.submit(Charge(order=1))
    latest = [await client.submit(Bill()) for _ in range(2)]
    follower = Follower(client, Filter())
    assert await follower.begin(0) == []
    await Worker(client, handlers).drain()
    assert await seen(follower) == []  # it was neither among the latest nor open when it was read
    assert await seen(follower, old.id, "01a00000-0000-7000-8000-000000000000") == [(old.id, "completed")]
    assert await seen(follower, old.id) == []
    # What comes into the page because others are deleted is not new.
    async with client.transaction() as tx:
        await client.delete(tx, latest)
    older = Follower(client, Filter())
    assert await older.begin(0) == []
    assert await seen(follower) == []


def overwhelmed(follower: Follower) -> bool:
    return follower.overwhelmed


async def test_more_than_one_look_reads(client: Client[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAGE", 2)
    monkeypatch.setattr(following, "PAGES", 2)
    monkeypatch.setattr(following, "REMEMBERED", 4)
    await client.submit(Bill())
    follower = Follower(client, Filter())
    await follower.begin(0)
    few = [await client.submit(Bill()) for _ in range(3)]
    assert [each for each, _ in await seen(follower)] == [chain.id for chain in few]
    assert not overwhelmed(follower)
    many = [await client.submit(Bill()) for _ in range(5)]
    assert [each for each, _ in await seen(follower)] == [chain.id for chain in many[1:]]
    assert overwhelmed(follower)
    assert await seen(follower) == []
    assert not overwhelmed(follower)
