"""`queuert check`: what this code could not run, before it is deployed."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import Ended, environment, installed, queuert

import queuert as library
from queuert import EntryJob

APP = """
from datetime import timedelta

import queuert
from queuert import Attempt, EntryJob, Handlers, Schedules, SyncAttempt, Worker


class Charge(EntryJob[None], name="charge"):
    cents: int


class Mail(EntryJob[None], name="mail"):
    to: str


handlers = Handlers()


@handlers.handles(Charge)
def charge(attempt: SyncAttempt[Charge]) -> None:
    pass


client = queuert.connect("memory://", jobs=[Charge, Mail])


schedules = Schedules()
schedules.every(timedelta(hours=1), Charge(cents=1), name="changed")
schedules.every(timedelta(hours=1), Charge(cents=1), name="same")


def make_worker() -> Worker:
    return Worker(queuert.connect("memory://", jobs=[Charge, Mail]), handlers, schedules=[schedules])


async def too_late() -> None:
    pass


nothing = 1
"""


class OldCharge(EntryJob[None], name="charge"):
    euros: int


class NewCharge(EntryJob[None], name="charge"):
    cents: int


class Mail(EntryJob[None], name="mail"):
    to: str


class Gone(EntryJob[None], name="gone"):
    pass


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shop_app.py").write_text(APP)
    return tmp_path


def check(app: Path, *arguments: str) -> Ended:
    path = f"{environment()['PYTHONPATH']}:{app}"
    return queuert("check", *arguments, PYTHONPATH=path)


def fill(url: str, *jobs: Any) -> list[str]:
    ids: list[str] = []
    for job in jobs:
        with library.connect_sync(url, jobs=[type(job)]) as client:
            ids.append(client.submit(job).id)
    return ids


def test_the_installed_command_finds_your_code_in_the_current_directory(url: str, app: Path) -> None:
    (chain_id,) = fill(url, NewCharge(cents=1))
    checked = installed("check", "--app", "shop_app:make_worker", "--against", url, cwd=app)
    assert (checked.code, checked.lines[-1], checked.err) == (0, "1 open jobs examined: this code can run them", "")

    with library.connect_sync(url, jobs=[NewCharge]) as client, client.transaction() as tx:
        client.cancel(tx, chain_id)
    corrected = ("retry", chain_id, "--input", '{"cents": 7}', "--app", "shop_app:handlers", "--yes", "--url", url)
    retried = installed(*corrected, cwd=app)
    assert (retried.code, retried.lines[-1], retried.err) == (0, "retried: 1 chain", "")


def test_what_this_code_can_run(url: str, app: Path) -> None:
    fill(url, NewCharge(cents=1), Mail(to="you"))
    ended = check(app, "--app", "shop_app:client", "--against", url)
    assert (ended.code, ended.lines, ended.err) == (0, ["2 open jobs examined: this code can run them"], "")


@pytest.mark.drivers
def test_what_it_cannot_run_is_listed(url: str, app: Path) -> None:
    ids = fill(url, OldCharge(euros=1), OldCharge(euros=2), NewCharge(cents=1), Gone(), Mail(to="you"))
    places = ["--app", "shop_app:client", "--app", "shop_app:handlers"]
    ended = check(app, *places, "--url", url)
    assert ended.code == 1
    assert ended.lines == [
        f"invalid input: 2 jobs of type charge, the first is {ids[0]}",
        "  job type 'charge': stored input refused: Object missing required field `cents`",
        f"unknown type: 1 job of type gone, the first is {ids[3]}",
        "  this code has no job class of this name, and none with this alias or version",
        f"no handler: 1 job of type mail, the first is {ids[4]}",
        "  this code has no handler for it",
        "5 open jobs examined: this code cannot run 4 of them",
    ]
    as_json = check(app, "--app", "shop_app:make_worker", "--url", url, "--json")
    assert as_json.code == 1
    assert [(each["problem"], each["job_type"], each["jobs"]) for each in as_json.objects] == [
        ("invalid_input", "charge", 2),
        ("unknown_type", "gone", 1),
        ("no_handler", "mail", 1),
    ]


UPGRADING = """
from queuert import EntryJob, connect


class Charge(EntryJob[None], name="charge", version=2):
    cents: int

    @classmethod
    def upgrade(cls, data, version):
        raise ValueError(f"not {data['euros']}")


client = connect("memory://", jobs=[Charge])
"""


def test_messages_that_differ_from_job_to_job_do_not_fill_the_screen(sqlite_url: str, app: Path) -> None:
    (app / "upgrading_app.py").write_text(UPGRADING)
    ids = fill(sqlite_url, *(OldCharge(euros=number) for number in range(25)))
    ended = check(app, "--app", "upgrading_app:client", "--url", sqlite_url)
    assert ended.code == 1
    assert len(ended.lines) == 2 * 21 + 1
    assert ended.lines[-3:] == [
        f"invalid input: 5 jobs of type charge, the first is {ids[20]}",
        "  job type 'charge': stored input refused: upgrade() from version 1 failed: ValueError: not 20",
        "25 open jobs examined: this code cannot run 25 of them",
    ]


def declare(url: str, *intervals: tuple[str, timedelta]) -> None:
    """What a worker of the last release has declared."""
    schedules, handlers = library.Schedules(), library.Handlers[Any]()
    for name, interval in intervals:
        schedules.every(interval, NewCharge(cents=1), name=name)
    handlers.handles(NewCharge)(lambda attempt: None)

    async def work() -> None:
        async with library.connect(url, jobs=[NewCharge]) as client:
            await library.Worker(client, handlers, schedules=[schedules]).drain()

    asyncio.run(work())


@pytest.mark.drivers
def test_schedules(url: str, app: Path) -> None:
    hour = timedelta(hours=1)
    declare(url, ("changed", 2 * hour), ("gone", hour), ("same", hour))
    for name, job in ("a", OldCharge(euros=1)), ("b", NewCharge(cents=1)), ("c", Gone()), ("d", Mail(to="you")):
        with library.connect_sync(url, jobs=[type(job)]) as client, client.transaction() as tx:
            client.put_schedule(tx, name, library.Every(hour), job)
    ended = check(app, "--app", "shop_app:make_worker", "--url", url)
    assert (ended.code, ended.err) == (1, "")
    assert ended.lines == [
        "invalid input: schedule a",
        "  job type 'charge': stored input refused: Object missing required field `cents`",
        "unknown type: schedule c",
        "  this code has no job class of this name, and none with this alias or version",
        "would change: schedule changed",
        "  this code declares it in another way: every 1:00:00",
        "no handler: schedule d",
        "  this code has no handler for it",
        "would change: schedule gone",
        "  this code does not declare it: it is disabled after 24 hours",
        "0 open jobs examined: this code can run them",
        "7 schedules examined: this code cannot start 3 of them",
    ]
    with library.connect_sync(url, jobs=[]) as client, client.transaction() as tx:
        for name in ("a", "c", "d"):
            client.delete_schedule(tx, name)
    as_json = check(app, "--app", "shop_app:make_worker", "--url", url, "--json")
    assert (as_json.code, as_json.err) == (0, ""), "a change is not a problem"
    assert [(each["problem"], each["schedule"]) for each in as_json.objects] == [
        ("would_change", "changed"),
        ("would_change", "gone"),
    ]
    client_only = check(app, "--app", "shop_app:client", "--url", url)
    assert client_only.lines[-1] == "4 schedules examined: this code can start them"


def test_it_is_bounded_unless_all_are_wanted(url: str, app: Path) -> None:
    with library.connect_sync(url, jobs=[Mail]) as client:
        client.submit_many([Mail(to=str(number)) for number in range(1100)])
    some = check(app, "--app", "shop_app:client", "--url", url, "--limit", "600")
    assert some.lines == ["600 open jobs examined, and there are more: use --all: this code can run them"]
    assert check(app, "--app", "shop_app:client", "--url", url, "--all").lines == [
        "1100 open jobs examined: this code can run them"
    ]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("shop_app:nothing", "shop_app:nothing is a int: name a client"),
        ("shop_app:too_late", "is async"),
        ("shop_app:missing", "shop_app has no 'missing'"),
        ("not a place", "does not name a client"),
    ],
)
def test_a_place_that_is_not_right(sqlite_url: str, app: Path, place: str, message: str) -> None:
    fill(sqlite_url, Mail(to="you"))
    ended = check(app, "--app", place, "--url", sqlite_url)
    assert ended.code == 2
    assert re.search(message, ended.err)
    assert len(ended.err.splitlines()) == 1
