"""`queuert limits`, on SQLite and PostgreSQL."""

from __future__ import annotations

import json

from tests.cli.running import in_process

from queuert import EntryJob, Limit, Rate, connect_sync


class Fetch(
    EntryJob[None], name="fetch", limit=Limit("partner-api", by="partner", concurrency=2, rate=Rate(100, per=10))
):
    partner: str


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
    in_process(*nobody, "--pause")
    assert "paused, without jobs: key 'nobody' of limit partner-api" in in_process("limits", "--url", url).out
    audit = in_process("audit", "--url", url).out
    assert audit.count("INC-42") == 2


def test_what_cannot_be_read_is_refused(url: str) -> None:
    wrong = in_process("limits", "x", "--rate", "often", "--url", url)
    assert wrong.code == 2
    assert "a rate is NUMBER/SECONDS" in wrong.err
    assert "which limit?" in in_process("limits", "--key", "a", "--url", url).err
    for words in (
        ["x", "--pause"],
        ["x", "--key", "a", "--pause", "--rate", "1/1"],
        ["x", "--until", "2h"],
        ["x", "--weight", "inf"],
    ):
        assert in_process("limits", *words, "--url", url).code == 2
