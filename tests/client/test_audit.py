"""The audit: what is recorded, and how it is read."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.jobs import After, Greet
from tests.support.worlds import START, World, fail, start

from queuert import EVERYTHING, ChainNotRetryable, InvalidArgument, InvalidCursor
from queuert.client.client import Client
from queuert.records.audit import AuditRecord


async def records(client: Client[Any], **options: Any) -> list[AuditRecord]:
    return list((await client.list_audit(**options)).items)


def told(record: AuditRecord) -> tuple[Any, ...]:
    return record.action, record.target, record.chain_id, record.by, record.reason, record.details


@pytest.mark.drivers
async def test_everything_that_is_done_with_a_name(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet(), after=60)
    who: Any = {"by": "on-call", "reason": "INC-42"}
    async with client.transaction() as tx:
        await client.trigger(tx, chain, **who)
    await fail(client, chain)
    async with client.transaction() as tx:
        await client.retry(tx, chain, **who)
    await fail(client, chain)
    async with client.transaction() as tx:
        await client.retry(tx, chain, input=Greet(who="x"), **who)
        await client.cancel(tx, chain, **who)
        await client.delete(tx, chain, **who)
        await client.pause(tx, EVERYTHING, cancel_running=True, **who)
        await client.resume(tx, EVERYTHING, **who)
        operation = await client.bulk_cancel(tx, "type:greet", cascade=True, per_second=5, **who)
    found = await records(client)
    assert [told(each) for each in reversed(found)] == [
        ("trigger", "greet", chain.id, "on-call", "INC-42", None),
        ("retry", "greet", chain.id, "on-call", "INC-42", None),
        ("retry", "greet", chain.id, "on-call", "INC-42", {"input": True}),
        ("cancel", "greet", chain.id, "on-call", "INC-42", None),
        ("delete", "greet", chain.id, "on-call", "INC-42", None),
        ("pause", "everything", None, "on-call", "INC-42", {"cancel_running": True}),
        ("resume", "everything", None, "on-call", "INC-42", None),
        ("bulk-cancel", "type:greet", operation.id, "on-call", "INC-42", {"per_second": 5, "cascade": True}),
    ]
    assert {each.at for each in found} == {START}
    assert [each.action for each in await records(client, chain=chain)] == [
        "delete", "cancel", "retry", "retry", "trigger",
    ]  # fmt: skip


async def test_nothing_is_recorded_without_a_name(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet(), after=60)
    async with client.transaction() as tx:
        await client.trigger(tx, chain)
        await client.cancel(tx, chain)
        await client.pause(tx, Greet, reason="a pause may have a reason alone")
        await client.resume(tx, Greet)
        await client.delete(tx, chain)
    assert await records(client) == []


async def test_a_bulk_operation_is_always_recorded(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        operation = await client.bulk_set_priority(tx, "type:greet", 0)
    assert [told(each) for each in await records(client)] == [
        ("bulk-set-priority", "type:greet", operation.id, None, None, {"priority": 0})
    ]


async def test_each_chain_that_was_changed_is_recorded(client: Client[Any], world: World) -> None:
    greeting = await start(client, Greet())
    after = await start(client, After(greeting=greeting))
    async with client.transaction() as tx:
        await client.cancel(tx, greeting, cascade=True, by="me")
        assert await client.cancel(tx, greeting, by="me") == []
        assert await client.resume(tx, Greet, by="me") is None
    assert [told(each) for each in await records(client)] == [
        ("cancel", "after", after.id, "me", None, {"cascade": True}),
        ("cancel", "greet", greeting.id, "me", None, {"cascade": True}),
    ]


async def test_it_is_recorded_with_the_change_or_not_at_all(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    with pytest.raises(RuntimeError):
        async with client.transaction() as tx:
            await client.cancel(tx, chain, by="me")
            assert len(await records(client, tx=tx)) == 1
            raise RuntimeError
    async with client.transaction() as tx:
        with pytest.raises(ChainNotRetryable):
            await client.retry(tx, chain, by="me")
    assert await records(client) == []


async def test_pages(client: Client[Any], world: World) -> None:
    for number in range(5):
        async with client.transaction() as tx:
            await client.pause(tx, Greet, by=str(number))
    seen: list[Any] = []
    cursor: str | None = None
    while True:
        page = await client.list_audit(limit=2, cursor=cursor)
        seen.append([each.by for each in page.items])
        cursor = page.next_cursor
        if cursor is None:
            break
    assert seen == [["4", "3"], ["2", "1"], ["0"]]


async def test_bad_input(client: Client[Any], world: World) -> None:
    chain = await start(client, Greet())
    async with client.transaction() as tx:
        with pytest.raises(InvalidArgument, match="reason= is recorded together with by="):
            await client.cancel(tx, chain, reason="why")
        with pytest.raises(InvalidArgument, match="by must not be empty"):
            await client.cancel(tx, chain, by="")
    with pytest.raises(InvalidArgument, match="limit"):
        await client.list_audit(limit=0)
    with pytest.raises(InvalidCursor):
        await client.list_audit(cursor="nonsense")
    listed = await client.list_chains(limit=1, order="desc")
    assert listed.next_cursor is None
