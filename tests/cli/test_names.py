"""A name with a typo pauses and limits nothing, so the command refuses it."""

from __future__ import annotations

import asyncio

import pytest
from tests.behaviour.steps import eventually
from tests.cli.running import as_process

from queuert import Attempt, EntryJob, Handlers, Limit, Worker, connect


class Charge(EntryJob[None], name="charge-card", queue="payments", limit=Limit("bank", by="account", concurrency=2)):
    account: str = "acme"


class Refund(EntryJob[None], name="refund", version=2):
    pass


class Gone(EntryJob[None], name="gone"):
    pass


handlers = Handlers()


@handlers.handles(Charge)
async def charge(attempt: Attempt[Charge]) -> None: ...


@handlers.handles(Refund)
async def refund(attempt: Attempt[Refund]) -> None: ...


REFUSED = [
    ("pause", "charge-crad", "no job type 'charge-crad' is known: did you mean charge-card?"),
    ("pause", "charge-card", "refnd", "no job type 'refnd' is known: did you mean refund?"),
    ("pause", "queue:payment", "no queue 'payment' is known: did you mean payments?"),
    ("pause", "queue:xyz", "no queue 'xyz' is known: known are default, payments"),
    ("limits", "bnak", "--concurrency", "3", "no limit 'bnak' is known: did you mean bank?"),
    ("limits", "bnak", "--key", "acme", "--pause", "no limit 'bnak' is known: did you mean bank?"),
    ("limits", "bnak", "no limit 'bnak' is known: did you mean bank?"),
]
ACCEPTED = [
    ("pause", "charge-card", "refund", "queue:payments", "gone", "queuert.bulk-retry", "everything"),
    ("pause", "charge-crad", "queue:new", "--anyway"),
    ("pause", "charge-crad"),  # it is paused already
    ("limits", "bank", "--concurrency", "3"),
    ("limits", "new", "--concurrency", "3", "--anyway"),
    ("limits", "bank", "--key", "acme", "--pause"),
]


@pytest.mark.drivers
async def test_names_are_looked_up(url: str) -> None:
    async with connect(url, jobs=[Charge, Refund, Gone]) as client:
        async with client.transaction() as tx:
            gone = await client.start(tx, Gone().set(after=3600))
        async with client.transaction() as tx:
            await client.cancel(tx, gone)
        async with Worker(client, handlers, queues=["default", "payments"]):
            await eventually(lambda: client.list_workers())
            for *words, error in REFUSED:
                found = await asyncio.to_thread(as_process, *words, "--url", url)
                assert (found.code, found.out) == (2, ""), (words, found)
                assert error in found.err
                assert "(for a name that does not exist yet: --anyway)" in found.err
            assert await client.list_pauses() == []
            for accepted in ACCEPTED:
                found = await asyncio.to_thread(as_process, *accepted, "--url", url)
                assert (found.code, found.err) == (0, ""), (accepted, found)
        names = {pause.target.name for pause in await client.list_pauses()}
        assert names >= {"charge-card", "refund", "refund@2", "gone", "charge-crad", "payments", "new"}
