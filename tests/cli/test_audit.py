"""What the command changes is recorded with the name of the user of the system, whatever it is."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from tests.cli.running import in_process, queuert

from queuert import Attempt, EntryJob, Every, Handlers, Limit, Worker, connect

APP = ("--app", "tests.cli.test_audit:handlers")
TICKS = datetime(2026, 1, 1, tzinfo=UTC)


class Charge(EntryJob[None], name="charge", limit=Limit("bank", by="account", concurrency=2)):
    account: str = "acme"


handlers = Handlers()


@handlers.handles(Charge)
async def charge(attempt: Attempt[Charge]) -> None:
    raise ValueError("no")


async def prepare(url: str) -> list[str]:
    """Three chains that wait for an hour, a schedule and a worker that has been there."""
    async with connect(url, jobs=[Charge]) as client:
        async with client.transaction() as tx:
            chains = [await client.start(tx, Charge().set(after=3600)) for _ in range(3)]
            await client.put_schedule(tx, "hourly", Every(timedelta(hours=1), start=TICKS), Charge())
        await Worker(client, handlers).drain()
    return [chain.id for chain in chains]


@pytest.mark.drivers
def test_every_change_is_recorded_with_the_user_of_the_system(url: str) -> None:
    first, second, third = asyncio.run(prepare(url))
    until = datetime.now(UTC) - timedelta(hours=2)
    changes = [
        (("trigger", first, "--yes"), "trigger", "charge"),
        (("set-priority", "5", second, "--yes"), "bulk-set-priority", f"chain:{second}"),
        (("cancel", third, "--yes"), "cancel", "charge"),
        (("retry", third, "--input", '{"account": "other"}', *APP, "--yes"), "retry", "charge"),
        (("delete", second, "--yes"), "delete", "charge"),
        (("pause", "charge"), "pause", "type charge"),
        (("resume", "charge"), "resume", "type charge"),
        (("pause", "everything"), "pause", "everything"),
        (("resume", "everything"), "resume", "everything"),
        (("limits", "bank", "--concurrency", "3"), "set_limit", "limit bank"),
        (("limits", "bank", "--clear"), "clear_limit", "limit bank"),
        (("limits", "bank", "--key", "acme", "--pause"), "pause", "key 'acme' of limit bank"),
        (("schedules", "pause", "hourly"), "pause", "schedule hourly"),
        (("schedules", "resume", "hourly"), "resume", "schedule hourly"),
        (("schedules", "trigger", "hourly"), "trigger", "schedule hourly"),
        (
            ("schedules", "backfill", "hourly", "--from", str(until), "--to", "1m", "--yes"),
            "backfill",
            "schedule hourly",
        ),
        (("schedules", "delete", "hourly", "--yes"), "delete", "schedule hourly"),
        (("prune", "--now"), "prune", "ended chains"),
    ]  # fmt: skip
    for words, action, target in changes:
        done = queuert(*words, "--url", url, "--reason", "INC-42")
        assert (done.code, done.err) == (0, ""), (words, done)
        last = queuert("audit", "--limit", "1", "--json", "--url", url).objects[0]
        assert [last[name] for name in ("action", "target", "by", "reason")] == [action, target, "ada", "INC-42"], words

    assert queuert("pause", "charge", "--by", "grace", "--url", url).code == 0
    assert queuert("audit", "--limit", "1", "--json", "--url", url).objects[0]["by"] == "grace"


def test_a_user_without_a_name_is_recorded_by_its_number(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asyncio.run(prepare(url))

    def nobody() -> str:
        raise OSError("No username set in the environment")

    monkeypatch.setattr("getpass.getuser", nobody)
    assert in_process("pause", "charge", "--url", url).code == 0
    (pause,) = in_process("pause", "--json", "--url", url).objects
    assert pause["by"] == f"user {os.getuid()}"


def test_a_repair_is_recorded_with_what_it_repaired(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    first, *_ = asyncio.run(prepare(url))
    with closing(sqlite3.connect(f"{tmp_path}/jobs.db", isolation_level=None)) as connection:
        connection.execute("UPDATE queuert_job SET ready = NULL WHERE id = ?", (first,))
    assert queuert("doctor", "--url", url).code == 1
    assert queuert("audit", "--url", url).out == "nothing was recorded\n"
    assert queuert("doctor", "--fix", "--reason", "INC-42", "--url", url).code == 0
    (record,) = queuert("audit", "--json", "--url", url).objects
    assert [record[name] for name in ("action", "target", "by", "reason")] == [
        "repair", f"not-queued {first}", "ada", "INC-42",
    ]  # fmt: skip
