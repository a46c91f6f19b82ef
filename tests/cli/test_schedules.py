"""`queuert schedules`, on SQLite and PostgreSQL.

Most of it runs in this process, which is quicker: how the command starts and ends is tested with others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from tests.cli.running import Ended, Terminal, in_process, queuert, still

from queuert import After, Attempt, Cron, EntryJob, Every, Handlers, Schedule, Schedules, Tick, Worker, connect

HOUR = timedelta(hours=1)
MINUTE = (datetime.now(UTC).minute + 30) % 60
"""Of each hour: no tick comes while the tests run."""
START = f"2026-01-01T00:{MINUTE:02}:00+00:00"


class Digest(EntryJob[None], name="digest"):
    tenant: int


schedules = Schedules()
handlers = Handlers[Any]()


@handlers.handles(Digest)
async def digest(attempt: Attempt[Digest]) -> None: ...


@schedules.cron("0 3 * * mon-fri", tz="Europe/Berlin")
def nightly(tick: Tick) -> Digest:
    return Digest(tenant=tick.local.day)


async def prepare(url: str) -> None:
    async with connect(url, jobs=[Digest]) as client:
        async with client.transaction() as tx:
            await client.put_schedule(tx, "digest\x1b[2J", Cron("0 8 * * *", tz="Asia/Kolkata"), Digest(tenant=7))
            await client.put_schedule(tx, "hourly", Every(HOUR, start=datetime.fromisoformat(START)), Digest(tenant=8))
            await client.put_schedule(
                tx, "sync", After(HOUR, start=datetime(2098, 1, 1, tzinfo=UTC)), Digest(tenant=9).set(priority=3)
            )
        await Worker(client, handlers, schedules=[schedules]).drain()


def read(url: str, name: str) -> Schedule | None:
    async def get() -> Schedule | None:
        async with connect(url, jobs=[], migrate=False) as client:
            return await client.get_schedule(name)

    return asyncio.run(get())


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """The command in this process, in the time zone of the others."""

    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Kolkata")
        # Not the terminal of pytest.
        patched.setattr("sys.stdin", StringIO())
        time.tzset()
        yield in_process
    time.tzset()


@pytest.fixture
def place(url: str) -> str:
    asyncio.run(prepare(url))
    return url


@pytest.mark.drivers
def test_looking(place: str, run: Run) -> None:
    listed = queuert("schedules", "--url", place)
    assert (listed.code, listed.err) == (0, "")
    assert [" ".join(line.split()) for line in still(listed.out).splitlines()] == [
        "NAME TIMES STARTS STATUS NEXT TICK LAST TICK",
        "digest\\x1b[2J 0 8 * * * Asia/Kolkata digest active DATE",
        "hourly every 1:00:00 from DATE digest active DATE",
        "nightly 0 3 * * mon-fri Europe/Berlin a function active DATE",
        "sync 1:00:00 after the last run from DATE digest active DATE",
    ]
    objects = run("schedules", "list", "--limit", "2", "--json", "--url", place).objects
    assert [(each["name"], each["job_type"], each["status"]) for each in objects] == [
        ("digest\x1b[2J", "digest", "active"), ("hourly", "digest", "active"),
    ]  # fmt: skip
    assert objects[0]["times"] == {
        "kind": "cron", "tz": "Asia/Kolkata", "expression": "0 8 * * *", "text": "0 8 * * * Asia/Kolkata"
    }  # fmt: skip
    assert (objects[0]["input"], objects[0]["declared"]) == ({"tenant": 7}, False)
    # An option may come before the action.
    shown = run("schedules", "--url", place, "show", "nightly")
    assert shown.lines[0] == "nightly: 0 3 * * mon-fri Europe/Berlin, a function"


def test_narrow_terminals(place: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for arguments in (["list"], ["preview", "nightly"]):
        lines = run("schedules", *arguments, "--url", place).lines
        assert len(lines) > 4
        assert max(map(len, lines)) <= 60


def test_preview(place: str, run: Run) -> None:
    ticks = run("schedules", "preview", "nightly", "--count", "260", "--url", place)
    assert ticks.lines[0].split() == ["TICK", "UTC", "FIRES", "NOTE"]
    assert all(" 03:00:00+0" in line for line in ticks.lines[1:])
    # Of a year: once each, in one order or the other.
    changes = [line.partition("clocks ")[2] for line in ticks.lines if "clocks" in line]
    assert {"went forward by 1:00:00", "went back by 1:00:00"} == set(changes)
    one, two = run("schedules", "preview", "hourly", "--count", "2", "--json", "--url", place).objects
    assert one["due"] == one["at"]
    assert datetime.fromisoformat(two["at"]) - datetime.fromisoformat(one["at"]) == HOUR
    unknown = run("schedules", "preview", "sync", "--url", place)
    assert (unknown.code, unknown.out) == (2, "")
    assert "not known in advance" in unknown.err


@pytest.mark.drivers
def test_pause_resume_and_trigger(place: str, run: Run) -> None:
    paused = run("schedules", "pause", "hourly", "nightly", "--until", "2099-01-31T12:00", "--url", place)
    assert paused == Ended(
        0, "paused: hourly until 2099-01-31 12:00:00+05:30\npaused: nightly until 2099-01-31 12:00:00+05:30\n", ""
    )
    triggered = run("schedules", "trigger", "hourly", "nightly", "--json", "--url", place).objects
    assert [(each["name"], each["done"], each["chain_id"] is None) for each in triggered] == [
        ("hourly", "triggered", False), ("nightly", "triggered", True),
    ]  # fmt: skip
    shown = run("show", triggered[0]["chain_id"], "--json", "--url", place).objects[0]
    assert (shown["schedule"], shown["input"]) == ("hourly", {"tenant": 8})
    assert "schedule    hourly\ntick        " in run("show", triggered[0]["chain_id"], "--url", place).out
    assert "started by schedule hourly" in run("why", triggered[0]["chain_id"], "--url", place).out
    resumed = run("schedules", "resume", "hourly", "sync", "--url", place)
    assert resumed == Ended(1, "resumed: hourly\nnot paused: sync\n", "")
    hourly, nightly = read(place, "hourly"), read(place, "nightly")
    assert hourly is not None
    assert nightly is not None
    assert (hourly.status, nightly.status) == ("active", "paused")
    unknown = run("schedules", "pause", "hourly", "none", "--url", place)
    assert (unknown.code, unknown.out) == (2, "")
    assert unknown.err.startswith("queuert schedules: there is no schedule 'none'")
    hourly = read(place, "hourly")
    assert hourly is not None
    assert hourly.status == "active"  # nothing was changed


@pytest.mark.drivers
def test_backfill_and_delete(place: str, run: Run) -> None:
    asked = run("schedules", "backfill", "hourly", "--from", "2026-01-01T00:00Z", "--to", "2026-01-01T05:00Z",
                    "--url", place)  # fmt: skip
    assert asked.code == 1
    first, last = (f"2026-01-01 {hour}:{MINUTE:02}:00+00:00" for hour in ("00", "04"))
    assert asked.out == f"hourly: 5 ticks, from {first} to {last}\n"
    assert "give --yes" in asked.err
    done = run("schedules", "backfill", "hourly", "--from", "2026-01-01T00:00Z", "--to", "2026-01-01T05:00Z",
                   "--yes", "--json", "--url", place)  # fmt: skip
    assert done.objects == [{"name": "hourly", "done": "backfilled", "ticks": 5}]

    terminal = Terminal("schedules", "delete", "hourly", "none", "nightly", "--url", place)
    terminal.read_until(r"delete 3 schedules\? \[y/N\]")
    terminal.type("y\n")
    assert terminal.end() == 1
    assert "deleted: hourly\nnot found: none\ndeleted: nightly: workers declare it" in terminal.text
    assert read(place, "hourly") is None


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["fire", "x"], "invalid choice: 'fire'"),
        (["pause"], "the following arguments are required: NAME"),
        (["pause", "x", "--until", "soon"], "'soon' is neither a duration"),
        (["backfill", "x", "--from", "1d"], "required: --to"),
        (["preview", "x", "--count", "0"], "'0' is not a number of 1 or more"),
    ],
)
def test_wrong_arguments(arguments: list[str], error: str, run: Run) -> None:
    ended = run("schedules", *arguments, "--url", "sqlite:///none.db")
    assert (ended.code, ended.out) == (2, "")
    assert error in ended.err
