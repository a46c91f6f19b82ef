"""Each command as a process, on SQLite and PostgreSQL, with its output compared."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import tomllib
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from tests.behaviour.steps import PATIENCE
from tests.cli.incidents import BLOCKED, DONE, FAILED, JOBS, LATER, READY, Charge, cause_incidents, handlers
from tests.cli.running import ROOT, Ended, Terminal, command, environment, in_process, queuert, still

from queuert import Attempt, EntryJob, Handlers, Worker, connect
from queuert.operate.counts import Count
from queuert.records.retention import Keep, KeepPolicy, policy_of


@pytest.fixture
def place(url: str) -> str:
    """A database with incidents."""
    asyncio.run(cause_incidents(url))
    return url


def statuses(url: str) -> dict[str, str]:
    async def read() -> dict[str, str]:
        async with connect(url, jobs=JOBS, migrate=False) as client:
            return {chain.id: chain.status or "" for chain in (await client.list_chains()).items}

    return asyncio.run(read())


# Looking


@pytest.mark.drivers
def test_status(place: str) -> None:
    shown = queuert("status", "--url", place)
    assert (shown.code, shown.err) == (0, "")
    assert still(shown.out) == (
        "TYPE         BLOCKED  PENDING  RUNNING  FAILED  OLDEST READY\n"
        "bill               0        2        0       0           AGE\n"
        "charge-card        0        0        0       1\n"
        "report             1        0        0       0\n"
        "all                1        2        0       1           AGE\n"
    )
    assert queuert("status", QUEUERT_URL=place).lines[0] == shown.lines[0]
    objects = queuert("status", "--json", "--url", place).objects
    assert objects[1:] == [
        {"job_type": "charge-card", "blocked": 0, "pending": 0, "running": 0, "failed": 1, "oldest_ready_age": None,
         "at_least": []},
        {"job_type": "report", "blocked": 1, "pending": 0, "running": 0, "failed": 0, "oldest_ready_age": None,
         "at_least": []},
    ]  # fmt: skip


def test_status_does_not_count_beyond_a_bound(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuert.operate.cli.commands.status.BOUND", 1)
    assert still(in_process("status", "--url", place).out) == (
        "TYPE         BLOCKED  PENDING  RUNNING  FAILED  OLDEST READY\n"
        "bill               0       1+        0       0           AGE\n"
        "charge-card        0        0        0       1\n"
        "report             1        0        0       0\n"
        "all                1       1+        0       1           AGE\n"
    )
    (bill, *others) = in_process("status", "--json", "--url", place).objects
    assert (bill["pending"], bill["at_least"]) == (1, ["pending"])
    assert [each["at_least"] for each in others] == [[], []]
    (bill, *_) = in_process("status", "--exact", "--json", "--url", place).objects
    assert (bill["pending"], bill["at_least"]) == (2, [])
    monkeypatch.setattr("queuert.operate.cli.commands.health.BOUND", 1)
    assert still(in_process("health", "--url", place).out) == (
        "OK: 2+ open jobs, 1 failed, the oldest ready job has waited for AGE\n"
    )


@pytest.mark.parametrize(("number", "text"), [(0, "0"), (10_000, "10,000"), (10_001, "10,000+")])
def test_counts(number: int, text: str) -> None:
    assert str(Count.up_to(10_000, number)) == text
    assert str(Count.up_to(None, number)) == f"{number:,}"


def test_status_in_a_narrow_terminal(place: str) -> None:
    terminal = Terminal("status", "--url", place, columns=60)
    assert terminal.end() == 0
    plain = re.sub(r"\x1b\[\d*m", "", terminal.text)
    assert plain != terminal.text  # with colours
    assert max(map(len, plain.splitlines())) <= 60
    terminal = Terminal("show", FAILED, "--url", place, columns=60, NO_COLOR="1")
    assert terminal.end() == 0
    assert "\x1b" not in terminal.text


def test_watching_ends_with_ctrl_c(place: str) -> None:
    terminal = Terminal("status", "--watch", "0.1", "--url", place)
    terminal.read_until(r"(?s)TYPE.*TYPE")
    terminal.send(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text


def test_watching_into_a_pipe_that_is_closed(place: str) -> None:
    with subprocess.Popen(
        command("status", "--watch", "0.1", "--json", "--url", place),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert '"job_type": "bill"' in process.stdout.readline()
        process.stdout.close()
        assert process.wait(PATIENCE) == 141
        assert process.stderr.read() == ""


@pytest.mark.drivers
def test_showing_a_failed_chain(place: str) -> None:
    shown = queuert("show", FAILED, "--url", place)
    assert (shown.code, shown.err) == (0, "")
    lines = still(shown.out).splitlines()
    worker = lines.pop(8)
    assert re.fullmatch(r"worker {6}worker-[0-9a-f-]{36}", worker)
    assert lines[:12] == [
        f"chain       {FAILED}  charge-card",
        f"job         {FAILED}  charge-card",
        "status      failed",
        "attempt     1",
        "priority    100",
        "created     DATE (AGE ago)",
        "scheduled   DATE (AGE ago)",
        "claimed     DATE (AGE ago)",
        "ended       DATE (AGE ago)",
        'input       {"order": 13}',
        "last error  CARD_DECLINED: no money\\x1b[2J left",  # it cannot clear the screen
        "    Traceback (most recent call last):",
    ]
    table = lines[lines.index("failed attempts") + 2 :]
    assert re.fullmatch(r" ?1  failed .*worker-\S+ .*CARD_DECLINED  no money.*", table[0])


def test_showing_a_chain_of_two_jobs(place: str) -> None:
    text = still(queuert("show", "01c", "--url", place).out)  # it fits only one
    assert 'output      "shipped"\n' in text
    assert text.endswith(
        "\njobs of the chain\n"
        "#  TYPE         STATUS     ATTEMPT  CREATED                    ID\n"
        f"0  charge-card  completed        1  DATE  {DONE}\n"
        "1  ship         completed        1  DATE  01d00000-0000-7000-8000-00000000000f\n"
    )  # fmt: skip
    (found,) = queuert("show", DONE, "--json", "--url", place).objects
    assert found["output"] == "shipped"
    assert [job["job_type"] for job in found["jobs"]] == ["charge-card", "ship"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+05:30", found["created_at"])  # the local zone


def test_showing_what_blocks(place: str) -> None:
    text = queuert("show", BLOCKED, "--url", place).out
    assert text.endswith(
        "\nblockers\n"
        "STATUS  TYPE         ID\n"
        f"failed  charge-card  {FAILED}\n"
    )  # fmt: skip
    (found,) = queuert("show", BLOCKED, "--json", "--url", place).objects
    assert found["blockers"] == [{"id": FAILED, "type": "charge-card", "status": "failed"}]


def test_ids_that_are_not_one(place: str) -> None:
    unknown = "01a00000-0000-7000-8000-00000000ffff"
    for given, error in {
        "01a": f"several ids begin with 01a: {FAILED}, {READY}, {LATER}",
        "01A0-": f"several ids begin with 01A0-: {FAILED}, {READY}",
        "02": "there is no job and no chain 02",
        unknown: f"there is no job and no chain {unknown}",
        " ": "an id is empty: give the id of a chain or a job, or the beginning of one",
        "not-an-id": "there is no job and no chain not-an-id",
    }.items():
        assert queuert("show", given, "--url", place) == Ended(2, "", f"queuert show: {error}\n")


@pytest.mark.drivers
def test_ls(place: str) -> None:
    listed = queuert("ls", "status:failed,blocked", "since:2h", "--url", place)
    assert (listed.code, listed.err) == (0, "")
    assert still(listed.out) == (
        "ID                                    TYPE         STATUS   CREATED                    ERROR\n"
        f"{BLOCKED}  report       blocked  DATE\n"
        f"{FAILED}  charge-card  failed   DATE  CARD_DECLINED\n"
    )
    (done,) = queuert("ls", "status:completed", "--json", "--url", place).objects
    assert (done["id"], done["chain_type"], done["current_job_type"]) == (DONE, "charge-card", "ship")
    assert "charge-card → ship" in queuert("ls", "type:ship", "--url", place).out
    first = queuert("ls", "--limit", "2", "--url", place)
    assert [line.split()[0] for line in first.lines[1:3]] == [DONE, BLOCKED]
    assert first.lines[3:] == ["there are more: these are the latest 2"]
    assert queuert("ls", "type:none", "--url", place) == Ended(0, "no chain matches\n", "")
    unknown = queuert("ls", "state:failed", "--url", place)
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("queuert ls: a filter has no word 'state': it has chain, ")


@pytest.mark.drivers
def test_ls_of_a_queue(place: str) -> None:
    """The workers tell which types are in it."""
    assert in_process("ls", "queue:mail", "--url", place) == Ended(
        2, "", "queuert ls: no worker is known that serves queue mail (no worker is known): give type:NAME instead\n"
    )

    async def look() -> tuple[Ended, ...]:
        async with connect(place, jobs=JOBS) as client, Worker(client, handlers):
            async with asyncio.timeout(PATIENCE):
                while not await client.list_workers():
                    await asyncio.sleep(0.01)
            listed = [
                await asyncio.to_thread(in_process, "ls", *words, "--url", place)
                for words in (["queue:default"], ["queue:default", "type:ship"], ["queue:default", "type:bill"],
                              ["queue:mail,default"])
            ]  # fmt: skip
            return tuple(listed)

    of_queue, of_both, of_none, unknown = asyncio.run(look())
    assert [line.split()[0] for line in of_queue.lines[1:]] == [DONE, FAILED]
    assert [line.split()[0] for line in of_both.lines[1:]] == [DONE]
    assert of_none.err == (
        "queuert ls: nothing can match: queue default has the types charge-card, ship, not bill\n"
    )  # fmt: skip
    assert unknown.err == (
        "queuert ls: no worker is known that serves queue mail (the workers serve default): give type:NAME instead\n"
    )


@pytest.mark.drivers
def test_tail(place: str) -> None:
    terminal = Terminal("tail", "--last", "1", "--url", place, columns=200, NO_COLOR="1")
    terminal.read_until(f"completed  {DONE}")
    assert FAILED not in terminal.text

    async def start() -> str:
        async with connect(place, jobs=JOBS, migrate=False) as client:
            chain = await client.submit(Charge(order=2))
            await asyncio.to_thread(terminal.read_until, f"pending    {chain.id}  charge-card\n")
            await Worker(client, handlers).drain()
            return chain.id

    chain_id = asyncio.run(start())
    terminal.read_until(f"completed  {chain_id}  charge-card → ship\n")
    terminal.send(signal.SIGINT)
    assert terminal.end() == 0
    assert "Traceback" not in terminal.text
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+05:30  completed", terminal.text)


def test_tail_into_a_pipe_that_is_closed(place: str) -> None:
    """The reader goes after the first line, which is that of a chain that has failed."""
    with subprocess.Popen(
        command("tail", "status:failed", "--every", "0.2", "--notify", "none", "--json", "--url", place),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["id"] == FAILED
        process.stdout.close()

        async def fail() -> None:
            async with connect(place, jobs=JOBS, migrate=False) as client:
                while process.poll() is None:
                    await client.submit(Charge(order=13))
                    await Worker(client, handlers).drain()

        asyncio.run(asyncio.wait_for(fail(), PATIENCE))
        assert process.wait(PATIENCE) == 141
        assert process.stderr.read() == ""


def test_wrong_arguments_of_tail(place: str) -> None:
    assert in_process("tail", "state:failed", "--url", place).err.startswith("queuert tail: a filter has no word ")
    assert in_process("tail", "--last", "1001", "--url", place).err == (
        "queuert tail: --last takes a number up to 1,000: `queuert ls` lists more\n"
    )  # fmt: skip


@pytest.mark.drivers
def test_why(place: str) -> None:
    assert queuert("pause", "bill", "--by", "me", "--reason", "PSP\x1b down", "--url", place).code == 0
    shown = queuert("why", READY, "--url", place)
    assert (shown.code, shown.err) == (0, "")
    assert re.sub(r"\d\d:\d\d:\d\d UTC \(\d+ s ago\)", "TIME", shown.out) == (
        f"job {READY} (bill) is pending\n"
        "  1. its type 'bill' has been paused since TIME by me: PSP\\x1b down\n"
        "     → client.resume(tx, 'bill') ends it now\n"
        "     $ queuert resume bill\n"
        "  2. no worker that is alive has a handler for 'bill', and none has ever had one; no worker is alive\n"
        "     → start a worker that has a handler for 'bill' and serves its queue\n"
    )
    (found,) = queuert("why", READY, "--json", "--url", place).objects
    assert (found["chain_id"], found["status"]) == (READY, "pending")
    assert [(each["kind"], each["in_the_way"]) for each in found["reasons"]] == [("Paused", True), ("NoWorker", True)]
    assert (found["reasons"][0]["target"], found["reasons"][0]["by"]) == ("type bill", "me")
    assert [each["command"] for each in found["reasons"]] == ["queuert resume bill", None]
    assert f"{FAILED} (charge-card, failed)" in queuert("why", "01b", "--url", place).out
    assert queuert("why", "02", "--url", place) == Ended(2, "", "queuert why: there is no job and no chain 02\n")


@pytest.mark.drivers
def test_workers(place: str) -> None:
    assert queuert("workers", "--url", place) == Ended(0, "no worker is known\n", "")

    async def look() -> tuple[Ended, Ended]:
        async with connect(place, jobs=JOBS) as client, Worker(client, handlers, concurrency=3, release="r1"):
            async with asyncio.timeout(PATIENCE):
                while not await client.list_workers():
                    await asyncio.sleep(0.01)
            arguments = ("workers", "--url", place)
            return await asyncio.to_thread(queuert, *arguments), await asyncio.to_thread(queuert, *arguments, "--json")

    shown, objects = asyncio.run(look())
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0].split() == ["STATE", "BUSY", "HOST", "PID", "RELEASE", "LAST", "SEEN", "TYPES", "ID"]
    (line,) = still(shown.out).splitlines()[1:]
    host, pid = re.escape(socket.gethostname()), os.getpid()
    assert re.fullmatch(
        rf"alive  0 of 3  {host} +{pid}  r1       DATE  charge-card, ship  worker-[0-9a-f-]{{36}}", line
    )
    (found,) = objects.objects
    assert (found["state"], found["slots"], found["release"], found["pid"]) == ("alive", 3, "r1", pid)
    assert [each["name"] for each in found["queues"][0]["types"]] == ["charge-card", "ship"]


@pytest.mark.drivers
def test_health(place: str) -> None:
    assert queuert("health", "--url", place).code == 0
    late = queuert("health", "--max-age", "0", "--max-failed", "0", "--url", place)
    assert (late.code, still(late.out)) == (
        2, "CRITICAL: bill has waited for AGE; 1 of charge-card failed\n",
    )  # fmt: skip
    fine = queuert("health", "--max-age", "3600", "--max-failed", "1", "--url", place)
    assert (fine.code, still(fine.out)) == (
        0, "OK: 3 open jobs, 1 failed, the oldest ready job has waited for AGE\n",
    )  # fmt: skip
    (found,) = queuert("health", "--max-failed", "0", "--json", "--url", place).objects
    assert (found["status"], found["problems"], found["failed"]) == ("CRITICAL", ["1 of charge-card failed"], 1)


# Changing


@pytest.mark.drivers
def test_retry_shows_a_plan_and_asks(place: str) -> None:
    refused = queuert("retry", FAILED, "--url", place)
    assert (refused.code, refused.err) == (
        1, "queuert retry: not confirmed: there is no terminal to ask on, so give --yes\n",
    )  # fmt: skip
    assert refused.out == (
        "ID                                    TYPE         STATUS  PLAN\n"
        f"{FAILED}  charge-card  failed  retry\n"
    )  # fmt: skip
    for answer, code, end in (("n", 1, "not confirmed: nothing was changed"), ("yes", 0, "retried: 1 chain")):
        terminal = Terminal("retry", FAILED, "--url", place)
        terminal.read_until(r"retry 1 chain\? \[y/N\] ")
        terminal.type(f"{answer}\n")
        assert terminal.end() == code
        assert terminal.text.endswith(f"{end}\n")
    assert statuses(place)[FAILED] == "pending"


def test_ctrl_c_at_the_question(place: str) -> None:
    terminal = Terminal("delete", READY, "--url", place)
    terminal.read_until(r"delete 1 chain\? \[y/N\] ")
    terminal.interrupt()
    assert terminal.end() == 130
    assert terminal.text.endswith("[y/N] ")
    assert statuses(place)[READY] == "pending"


def test_what_cannot_be_changed_is_left_out(place: str) -> None:
    done = queuert("retry", FAILED, READY, "--yes", "--url", place)
    assert (done.code, done.out) == (
        1,
        "ID                                    TYPE         STATUS   PLAN\n"
        f"{FAILED}  charge-card  failed   retry\n"
        f"{READY}  bill         pending  left as it is: not failed\n"
        "retried: 1 chain\n",
    )
    assert queuert("retry", FAILED, "--yes", "--url", place).lines[-1].endswith("left as it is: not failed")


@pytest.mark.drivers
def test_cancel_trigger_and_delete(place: str) -> None:
    planned = queuert("cancel", FAILED, LATER, "--plan", "--json", "--url", place)
    assert [found["plan"] for found in planned.objects] == ["left as it is: not blocked, pending or running", "cancel"]
    assert statuses(place)[LATER] == "pending"
    triggered = queuert("trigger", LATER, "--yes", "--json", "--url", place)
    assert triggered.objects == [{"id": LATER, "type": "bill", "status": "pending", "done": "triggered"}]
    cancelled = queuert("cancel", LATER, "--yes", "--url", place)
    assert (cancelled.code, cancelled.lines[-1]) == (0, "cancelled: 1 chain")
    # The failed chain blocks another one.
    kept = queuert("delete", FAILED, "--yes", "--url", place)
    assert kept.code == 1
    assert f"{FAILED} is needed by {BLOCKED}" in kept.err
    assert kept.err.count("\n") == 1
    both = queuert("cancel", "status:failed", "--blockers", "--url", place)
    assert (both.code, "--blockers is for ids" in both.err) == (2, True)
    deleted = queuert("delete", LATER, BLOCKED, "--cascade", "--yes", "--url", place)
    assert (deleted.code, deleted.lines[-1]) == (0, "deleted: 3 chains")
    assert set(statuses(place)) == {READY, DONE}


# Pausing


@pytest.mark.drivers
def test_pause_and_resume(place: str) -> None:
    assert queuert("pause", "--url", place) == Ended(0, "nothing is paused\n", "")
    made = queuert(
        "pause", "bill", "queue:mail", "--until", "2h", "--reason", "PSP\x1b down", "--by", "me", "--anyway",
        "--url", place,
    )  # fmt: skip
    assert (made.code, made.err) == (0, "")
    assert still(made.out) == (
        "TARGET      SINCE                      UNTIL                      BY  REASON\n"
        "type bill   DATE  DATE  me  PSP\\x1b down\n"
        "queue mail  DATE  DATE  me  PSP\\x1b down\n"
    )
    everything = queuert("pause", "everything", "--cancel-running", "--json", "--url", place).objects
    found = queuert("pause", "--json", "--url", place).objects
    assert found[0] == everything[0]
    assert [(each["scope"], each["name"], each["cancel_running"]) for each in found] == [
        ("everything", "", True), ("queue", "mail", False), ("type", "bill", False),
    ]  # fmt: skip
    assert (found[0]["until"], found[0]["by"], found[0]["reason"]) == (None, "ada", None)
    length = datetime.fromisoformat(found[2]["until"]) - datetime.fromisoformat(found[2]["since"])
    assert length == timedelta(hours=2)
    ended = queuert("resume", "everything", "type:bill", "type:mail", "--url", place)
    assert ended == Ended(1, "resumed: everything\nresumed: type bill\nnot paused: type mail\n", "")
    assert queuert("resume", "queue:mail", "--json", "--url", place).objects == [
        {"scope": "queue", "name": "mail", "done": "resumed"}
    ]
    assert queuert("pause", "--url", place).out == "nothing is paused\n"


def test_pausing_until_a_time_of_the_local_zone(place: str) -> None:
    (made,) = queuert("pause", "bill", "--until", "2099-01-31T12:00", "--json", "--url", place).objects
    assert made["until"] == "2099-01-31T12:00:00+05:30"
    (made,) = queuert("pause", "bill", "--until", "2099-01-31T12:00Z", "--json", "--url", place).objects
    assert made["until"] == "2099-01-31T17:30:00+05:30"


def test_a_filter_has_all_versions_of_a_type(place: str) -> None:
    class Pay(EntryJob[None], name="charge", version=2):
        pass

    class Before(EntryJob[None], name="charge"):
        pass

    async def submit(job: EntryJob[None]) -> str:
        async with connect(place, jobs=[type(job)]) as client:
            return (await client.submit(job)).id

    ids = [asyncio.run(submit(job)) for job in (Before(), Pay())]
    listed = queuert("ls", "type:charge", "--json", "--url", place)
    assert sorted(each["id"] for each in listed.objects) == sorted(ids)
    assert [each["id"] for each in queuert("ls", "type:charge@2", "--json", "--url", place).objects] == ids[1:]
    (planned,) = queuert("cancel", "type:charge", "--plan", "--json", "--url", place).objects
    assert (planned["chains"], planned["filter"]) == (2, "type:charge,charge@2")


def test_pausing_all_versions_of_a_type(place: str) -> None:
    """As with a class, but the command asks the workers which names there are."""

    class Pay(EntryJob[None], name="charge", version=3):
        pass

    paying = Handlers[Any]()

    @paying.handles(Pay)
    async def pay(attempt: Attempt[Pay]) -> None:
        pass

    async def pause() -> list[Ended]:
        async with connect(place, jobs=[Pay]) as client, Worker(client, paying):
            async with asyncio.timeout(PATIENCE):
                while not await client.list_workers():
                    await asyncio.sleep(0.01)
            return [await asyncio.to_thread(in_process, *words, "--json", "--url", place)
                    for words in (["pause", "charge"], ["resume", "charge@3"], ["resume", "charge"])]  # fmt: skip

    paused, one, others = asyncio.run(pause())
    assert [each["name"] for each in paused.objects] == ["charge", "charge@2", "charge@3"]
    assert [(each["name"], each["done"]) for each in one.objects] == [("charge@3", "resumed")]
    assert [(each["name"], each["done"]) for each in others.objects] == [("charge", "resumed"), ("charge@2", "resumed")]


def test_pausing_until_the_past(place: str) -> None:
    refused = in_process("pause", "bill", "--until", "2020-01-01", "--url", place)
    assert (refused.code, "'2020-01-01' is over" in refused.err) == (2, True)
    refused = in_process("pause", "x" * 1000, "--url", place)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert in_process("pause", "--url", place).out == "nothing is paused\n"


def test_pausing_nothing(place: str) -> None:
    refused = queuert("pause", "--reason", "x", "--url", place)
    assert refused == Ended(2, "", "queuert pause: what to pause? Name a job type, queue:NAME, or everything\n")


# Migrating


def test_migrate(empty_url: str) -> None:
    planned = queuert("migrate", "--plan", "--url", empty_url)
    assert planned.code == 1
    assert planned.lines[0].startswith("there are no tables, this version of queuert needs ")
    known = planned.lines[0].rpartition(" ")[2]
    versions = planned.lines[1].removeprefix("to apply: ")
    assert planned.lines[2:] == (["to install: the functions of this version"] if "postgres" in empty_url else [])
    missing = queuert("status", "--url", empty_url)
    assert missing.code == 3
    assert "`queuert migrate`" in missing.err
    assert queuert("migrate", "--url", empty_url).out == f"applied: {versions}\n"
    assert queuert("migrate", "--url", empty_url).out == f"the tables are up to date: version {known}\n"
    assert queuert("migrate", "--plan", "--url", empty_url) == Ended(
        0, f"the tables have version {known}, this version of queuert needs {known}\nnothing to do\n", ""
    )
    (plan,) = queuert("migrate", "--plan", "--json", "--url", empty_url).objects
    assert plan == {"version": int(known), "known": int(known), "missing": [], "functions": False}
    assert queuert("status", "--url", empty_url).out == "no open and no failed jobs\n"


def test_the_sql_of_all_migrations_is_complete(empty_url: str) -> None:
    written = queuert("migrate", "--sql", "--url", empty_url)
    assert (written.code, written.err) == (0, "")
    assert written == queuert("migrate", "--sql", "--url", empty_url)
    if empty_url.startswith("sqlite"):
        path = Path(urlsplit(empty_url).path[1:])
        assert not path.exists()
        connection = sqlite3.connect("/" / path)
        connection.executescript(written.out)
        connection.close()
    else:
        with psycopg.connect(empty_url, autocommit=True) as server:
            server.execute(written.out.encode())
    assert queuert("migrate", "--plan", "--url", empty_url).code == 0
    asyncio.run(cause_incidents(empty_url))
    assert len(queuert("status", "--json", "--url", empty_url).objects) == 3
    (known,) = re.findall(r"^-- queuert: schema version 0 to (\d+)", written.out)
    rest = queuert("migrate", "--sql", "--from", known, "--url", empty_url)
    creates_a_table = re.compile(r"^CREATE TABLE (?!IF NOT EXISTS)", re.MULTILINE)
    assert creates_a_table.search(written.out)
    assert not creates_a_table.search(rest.out)


def test_another_schema_and_prefix(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as server:
        server.execute("CREATE SCHEMA work")
    options = ["--url", database_url, "--schema", "work", "--table-prefix", "q_"]
    assert queuert("migrate", *options).code == 0
    assert queuert("status", *options).code == 0
    assert queuert("status", "--url", database_url).code == 3


@pytest.fixture
def guest(migrated_url: str) -> Iterator[str]:
    """A role with the rights of an application: it cannot create anything."""
    asyncio.run(cause_incidents(migrated_url))
    role = f"guest_{os.getpid()}"
    with psycopg.connect(migrated_url, autocommit=True) as server:

        def execute(text: str) -> None:
            server.execute(f"{text} {role}".encode())

        execute("CREATE ROLE")
        try:
            execute(f"ALTER ROLE {role} LOGIN; GRANT USAGE ON SCHEMA public TO")
            execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO")
            execute("GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO")
            yield migrated_url.replace("://postgres@", f"://{role}@")
        finally:
            execute("DROP OWNED BY")
            execute("DROP ROLE")


def test_without_the_right_to_create_tables(guest: str) -> None:
    assert queuert("status", "--url", guest).code == 0
    assert queuert("show", "01c", "--url", guest).code == 0
    assert queuert("retry", FAILED, "--yes", "--url", guest).code == 0
    assert queuert("migrate", "--plan", "--url", guest).code == 0
    assert queuert("health", "--url", guest).code == 0


# A server that does not answer


def test_a_server_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://postgres@127.0.0.1:{silent.getsockname()[1]}/x"
        assert queuert("health", "--timeout", "1", "--url", url) == Ended(
            3, "", "UNKNOWN: the database has not answered within 1 s\n"
        )
        silent.accept()[0].close()
        terminal = Terminal("status", "--url", url)
        with silent.accept()[0]:
            terminal.send(signal.SIGINT)
            assert terminal.end() == 130
        assert terminal.text == ""


# Wrong arguments


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["status"], 2, "queuert status: which database? Give --url, or set QUEUERT_URL\n"),
        (["status", "--url", "memory://x"], 2,
         "queuert status: a database in memory can be seen only by the process that made it\n"),
        (["status", "--url", "mysql://user:secret@host/x"], 2,
         "queuert status: 'mysql:…' is not a supported database URL: use postgresql://user@host/database, "
         "sqlite:///file.db, sqlite:////absolute/file.db or memory://\n"),
        (["migrate", "--from", "3", "--url", "sqlite:///x.db"], 2, "queuert migrate: --from is for --sql\n"),
        (["migrate", "--sql", "--from", "999", "--url", "sqlite:///x.db"], 2,
         "queuert migrate: --from 999 is newer than this version of queuert, which knows "),
        (["status", "--schema", "x", "--url", "sqlite:///x.db"], 2, "queuert status: schema is for PostgreSQL\n"),
        (["status", "--url", "sqlite:////nowhere/x.db"], 3,
         "queuert status: there is no file /nowhere/x.db: check --url, or create the database with "
         "`queuert migrate`\n"),
        (["health", "--url", "sqlite:////nowhere/x.db"], 3,
         "UNKNOWN: there is no file /nowhere/x.db: check --url, or create the database with `queuert migrate`\n"),
        (["status", "--url", "postgresql://postgres@127.0.0.1:1/x"], 3, "queuert status: "),
        (["worker", "a:b", "--processes", "0"], 2, "usage: "),
        (["worker", "a:b", "--kill-after", "soon"], 2, "usage: "),
        (["health", "--max-failed", "-1"], 2, "usage: "),
        (["worker", "a:b", "--health", "8081"], 2,
         "queuert worker: --health takes HOST:PORT, like 127.0.0.1:8081 or :8081, got '8081'\n"),
        (["pause", "queue:"], 2, "usage: "),
        (["pause", "bill", "--until", "soon"], 2, "usage: "),
        (["resume"], 2, "usage: "),
        (["dance"], 2, "usage: "),
        ([], 2, "usage: "),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments: list[str], code: int, error: str) -> None:
    ended = queuert(*arguments)
    assert (ended.code, ended.out) == (code, "")
    assert ended.err == error if error.endswith("\n") else ended.err.startswith(error)
    if not error.startswith("usage"):
        assert ended.err.count("\n") == 1


def test_the_script_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    module, _, name = project["project"]["scripts"]["queuert"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_the_version() -> None:
    assert re.fullmatch(r"queuert \S+\n", queuert("--version").out)


@pytest.mark.drivers
def test_retention_and_prune(place: str) -> None:
    assert queuert("retention", "--url", place).out.startswith(("no worker has stored", "TYPE"))
    asyncio.run(_keep_nothing(place))
    shown = queuert("retention", "--url", place)
    assert (shown.code, shown.err) == (0, "")
    assert re.fullmatch(
        r"bill +for ever +0 s +for ever +0 s +deleted *", next(each for each in shown.lines if "bill" in each)
    )
    refused = queuert("prune", "--url", place)
    assert (refused.code, refused.err) == (
        2,
        "queuert prune: this deletes chains: give --now. `queuert retention` shows what is kept\n",
    )
    assert queuert("prune", "--now", "--full", "--url", place).lines[-1] == "deleted: 1 chains, 1 jobs"
    (found,) = queuert("prune", "--now", "--json", "--url", place).objects
    assert (found["chains"], found["jobs"], found["busy"]) == ({}, 0, False)
    (found,) = queuert("retention", "--json", "--url", place).objects
    assert {each["chain_type"]: each["failed"] for each in found["types"]}["charge-card"] == 0
    assert FAILED not in statuses(place)


@pytest.mark.drivers
def test_archived_chains(place: str) -> None:
    """They are left to those that have the function. One that was archived is shown as that."""
    asyncio.run(_archive(place, fails=True))
    shown = queuert("retention", "--url", place)
    assert (shown.code, shown.err) == (0, "")
    assert any(re.search(r"^charge-card .* archived", each) for each in shown.lines)
    assert (
        "charge-card: 1 chains are due and wait to be archived, by a process that has the function for it"
        in shown.lines
    )
    assert any(re.fullmatch(r"  it failed .* ago\): RuntimeError: the disk is full", each) for each in shown.lines)
    pruned = queuert("prune", "--now", "--full", "--url", place)
    assert pruned.lines[-2:] == [
        "deleted: 0 chains, 0 jobs",
        "left: 1 chains of charge-card, to be archived by a worker that has the function for it",
    ]
    (found,) = queuert("prune", "--now", "--json", "--url", place).objects
    assert found["waiting"] == {"charge-card": 1}
    (found,) = queuert("retention", "--json", "--url", place).objects
    assert [(each["archived"], each["waiting"], each["archive_error"]) for each in found["types"]] == [
        (True, 1, "RuntimeError: the disk is full")
    ]
    asyncio.run(_archive(place, fails=False))
    for name in ("show", "why", "retry"):
        ended = queuert(name, FAILED, "--url", place)
        assert (ended.code, ended.out) == (1, "")
        assert re.fullmatch(
            rf"queuert {name}: chain {FAILED} \(charge-card, failed\) was archived at .* UTC: the function "
            r"_archive\.<locals>\.archive\n",
            ended.err,
        )


def test_history(place: str) -> None:
    assert queuert("history", "other", "--url", place).out.startswith("nothing happened since ")
    cancelled = queuert("cancel", BLOCKED, "--yes", "--url", place)
    assert cancelled.code == 0
    shown = queuert("history", "--since", "1h", "--step", "30m", "--url", place)
    assert (shown.code, shown.err) == (0, "")
    assert shown.lines[0].split()[:8] == [
        "SINCE",
        "BEGUN",
        "COMPLETED",
        "FAILED",
        "RETRIED",
        "EXPIRED",
        "CANCELLED",
        "WAITED",
    ]
    found = queuert("history", "--json", "--url", place).objects
    assert sum(each["cancelled"] for each in found) >= 1
    assert {each["step"] for each in found} == {60.0}
    refused = queuert("history", "--since", "3d", "--step", "1m", "--url", place)
    assert (refused.code, refused.err.startswith("queuert history: step is 60 seconds")) == (2, True)


async def _archive(url: str, *, fails: bool) -> None:
    """Archive the chain that has failed, or try to."""

    async def archive(tx: Any, chains: Any) -> None:
        if fails:
            raise RuntimeError("the disk is full")

    keep = Keep(completed=None, failed=0.001, cancelled=None, expired=None, archive=archive)
    async with connect(url, jobs=JOBS, migrate=False, keep=keep) as client:
        sessions = client.sessions
        await sessions.run(sessions.engine.state.store_policies([policy_of(keep, "charge-card")]))
        if fails:
            async with client.transaction() as tx:
                await client.delete(tx, BLOCKED)  # it needs the one that failed
            with pytest.raises(RuntimeError):
                await client.prune(full=True)
        else:
            assert (await client.prune(full=True)).deleted == 1


async def _keep_nothing(url: str) -> None:
    async with connect(url, jobs=JOBS, migrate=False) as client:
        sessions = client.sessions
        policies = [KeepPolicy(name, None, 0.0, None, 0.0) for name in ("bill", "charge-card")]
        await sessions.run(sessions.engine.state.store_policies(policies))
        async with client.transaction() as tx:
            await client.delete(tx, BLOCKED)  # it needs the one that failed
