"""`queuert limits`, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from tests.cli.running import in_process

from queuert import Attempt, EntryJob, Handlers, JobError, Limit, Rate, Worker, connect, connect_sync
from queuert.records.limits import COUNTED


class Fetch(
    EntryJob[None], name="fetch", limit=Limit("partner-api", by="partner", concurrency=2, rate=Rate(100, per=10))
):
    partner: str


class Post(EntryJob[None], name="post", limit=Limit(by="account", concurrency=1, ordered=True)):
    account: str
    number: int


class Sweep(EntryJob[None], name="sweep", limit=Limit(concurrency=1)):
    number: int


handlers = Handlers[Any]()


async def work(attempt: Attempt[Any]) -> None:
    if not attempt.job.number:
        raise JobError("NO", "no number", retry=False)


handlers.handles(Post)(work)
handlers.handles(Sweep)(work)


def test_limits_are_shown_and_changed(url: str) -> None:
    with connect_sync(url, jobs=[Fetch]) as client, client.transaction() as tx:
        client.start_many(tx, [Fetch(partner="acme"), Fetch(partner="acme"), Fetch(partner="other")])
    shown = in_process("limits", "--url", url, "--json")
    rows = [json.loads(line) for line in shown.out.splitlines()]
    assert [(row["limit"], row["key"], row["waiting"], row["set"]) for row in rows] == [
        ("partner-api", "acme", 2, False),
        ("partner-api", "other", 1, False),
    ]
    change = ("limits", "partner-api", "--key", "acme", "--concurrency", "20", "--rate", "5/1/smooth", "--by", "ann")
    changed = in_process(*change, "--url", url, "--json")
    row = json.loads(changed.out)
    assert (row["key"], row["concurrency"], row["rate"], row["set"]) == ("acme", 20, "5/1/smooth", True)
    assert "set_limit" in in_process("audit", "--url", url).out
    assert "5/1/smooth" in in_process("limits", "partner-api", "--url", url).out
    assert in_process("limits", "partner-api", "--key", "acme", "--clear", "--url", url).out == "cleared\n"
    again = in_process("limits", "partner-api", "--key", "acme", "--clear", "--url", url)
    assert (again.code, again.out) == (1, "nothing was set\n")


def test_a_key_is_paused_and_resumed(url: str) -> None:
    with connect_sync(url, jobs=[Fetch]) as client, client.transaction() as tx:
        client.start(tx, Fetch(partner="acme"))
    key = ("limits", "partner-api", "--key", "acme", "--url", url, "--by", "ann", "--reason", "INC-42")
    assert in_process(*key, "--pause", "--until", "2h").out == "paused: key 'acme' of limit partner-api\n"
    (row,) = (json.loads(line) for line in in_process("limits", "--url", url, "--json").out.splitlines())
    assert row["paused"] is True
    assert "yes: INC-42" in in_process("limits", "--url", url).out
    assert in_process(*key, "--resume").out == "resumed: key 'acme' of limit partner-api\n"
    assert in_process(*key, "--resume").code == 1
    nobody = ("limits", "partner-api", "--key", "nobody", "--url", url)
    in_process(*nobody, "--pause", "--cancel-running")
    with connect_sync(url, jobs=[Fetch]) as client:
        assert [pause.cancel_running for pause in client.list_pauses()] == [True]
    assert "paused, without jobs: key 'nobody' of limit partner-api" in in_process("limits", "--url", url).out
    audit = in_process("audit", "--url", url).out
    assert audit.count("INC-42") == 2


async def _stop_a_key(url: str) -> tuple[str, str]:
    async with connect(url, jobs=[Post, Sweep]) as client:
        async with client.transaction() as tx:
            first, _ = [await client.start(tx, Post(account="x", number=number)) for number in (0, 1)]
            other = await client.start(tx, Sweep(number=0))
        await Worker(client, handlers).drain()
        return first.id, other.id


@pytest.mark.drivers
def test_a_failed_chain_that_stops_its_key(url: str) -> None:
    """It can be cancelled. Its input can be corrected only with its class, because that knows the key."""
    first, other = asyncio.run(_stop_a_key(url))
    plan = in_process("cancel", first, other, "--plan", "--json", "--url", url)
    assert [each["plan"] for each in plan.objects] == ["cancel", "left as it is: not blocked, pending or running"]
    correct = ("retry", first, "--input", '{"account": "y", "number": 2}', "--url", url, "--yes")
    refused = in_process(*correct)
    assert refused.code != 0
    assert "has the key 'x' of the limit 'post', and only the class of 'post' can tell" in refused.err
    assert in_process(*correct, "--app", f"{__name__}:handlers").code == 0
    with connect_sync(url, jobs=[Post, Sweep]) as client:
        waiting = {row.key: row.waiting for row in client.list_limits().items if row.name == "post"}
    assert waiting == {None: 0, "x": 1, "y": 1}
    without_key = ("retry", other, "--input", '{"number": 1}', "--url", url, "--yes")
    assert in_process(*without_key).code == 0, "all jobs of its limit have one key"


def test_a_failed_chain_that_stops_its_key_is_cancelled(url: str) -> None:
    first, other = asyncio.run(_stop_a_key(url))
    done = in_process("cancel", first, other, "--yes", "--json", "--url", url)
    assert (done.code, [each["status"] for each in done.objects]) == (1, ["cancelled"])


def test_what_cannot_be_read_is_refused(url: str) -> None:
    wrong = in_process("limits", "x", "--rate", "often", "--url", url)
    assert wrong.code == 2
    assert "a rate is NUMBER/SECONDS" in wrong.err
    assert "which limit?" in in_process("limits", "--key", "a", "--url", url).err
    for words in (
        ["x", "--pause"],
        ["x", "--key", "a", "--pause", "--rate", "1/1"],
        ["x", "--until", "2h"],
        ["x", "--key", "a", "--resume", "--cancel-running"],
        ["x", "--weight", "inf"],
    ):
        assert in_process("limits", *words, "--url", url).code == 2


def test_of_a_very_long_line_a_lower_bound_is_shown(sqlite_url: str) -> None:
    with connect_sync(sqlite_url, jobs=[Fetch]) as client, client.transaction() as tx:
        client.start_many(tx, [Fetch(partner="acme") for _ in range(COUNTED + 50)])
        client.start_many(tx, [Fetch(partner="other") for _ in range(COUNTED - 50)])
    assert re.findall(r"(acme|other) +0 +(\S+)", in_process("limits", "--url", sqlite_url).out) == [
        ("acme", f"{COUNTED}+"),
        ("other", str(COUNTED - 50)),
    ]
    rows = [json.loads(line) for line in in_process("limits", "--url", sqlite_url, "--json").out.splitlines()]
    assert [(row["waiting"], row["more_waiting"]) for row in rows] == [(COUNTED, True), (COUNTED - 50, False)]
