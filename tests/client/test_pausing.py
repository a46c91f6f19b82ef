"""pause, resume and list_pauses, as a client does them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.support.jobs import Greet
from tests.support.worlds import START, World, claim, start

from queuert import EVERYTHING, EntryJob, Queue
from queuert.client.client import Client
from queuert.errors import InvalidArgument, UnknownJobType


class Unknown(EntryJob[None], name="unknown"):
    pass


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (Greet, "type greet"),
        ("of-another-service", "type of-another-service"),
        (Queue("mail"), "queue mail"),
        (EVERYTHING, "everything"),
    ],
)
async def test_it_is_announced_after_the_commit(client: Client[Any], world: World, target: Any, text: str) -> None:
    async with client.transaction() as tx:
        made = await client.pause(tx, target, until=60, reason="why", by="me")
        assert world.heard == []
    assert world.heard == [("pause_changed", text)]
    assert str(made.target) == text
    assert (made.since, made.until, made.reason, made.by) == (START, START + timedelta(seconds=60), "why", "me")
    assert await client.list_pauses() == [made]
    world.heard.clear()
    async with client.transaction() as tx:
        assert await client.resume(tx, target) == made
        assert await client.list_pauses(tx=tx) == []
        assert await client.resume(tx, target) is None
    assert world.heard == [("pause_changed", text)]


async def test_resuming_what_is_not_paused_announces_nothing(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        assert await client.resume(tx, Greet) is None
    assert world.heard == []


async def test_starting_goes_on(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        await client.pause(tx, Greet, until=START + timedelta(seconds=10))
    chain = await start(client, Greet())
    assert await claim(client, "greet") == []
    world.pass_time(10)
    assert await client.list_pauses() == []
    assert [each.job.id for each in await claim(client, "greet")] == [chain.id]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": ""}, "a Queue, a LimitKey or EVERYTHING"),
        ({"target": None}, "a Queue, a LimitKey or EVERYTHING"),
        ({"target": 7}, "7"),
        ({"until": datetime(2031, 1, 1)}, "naive"),  # noqa: DTZ001
        ({"until": -1}, "until"),
        ({"until": "tomorrow"}, "until must be a datetime"),
        ({"reason": ""}, "reason"),
        ({"reason": "x" * 1001}, "reason"),
        ({"by": "a\0b"}, "by"),
        ({"by": "x" * 201}, "by"),
    ],
)
async def test_bad_input(client: Client[Any], arguments: dict[str, Any], message: str) -> None:
    arguments = dict(arguments)
    async with client.transaction() as tx:
        with pytest.raises(InvalidArgument, match=message):
            target: Any = arguments.pop("target", Greet)
            await client.pause(tx, target, **arguments)
        assert await client.list_pauses(tx=tx) == []


async def test_a_class_that_the_client_does_not_know(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        with pytest.raises(UnknownJobType):
            await client.pause(tx, Unknown)
