"""Watching a SQLite file: commits of others are noticed, our own are not, and nothing that happens to the file ends it.

Here every connection that the hub does not know of stands for another process: SQLite makes no difference. Two real
processes are in tests/behaviour/test_two_processes.py.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.steps import Step, eventually
from tests.behaviour.watching import Points, watched

import queuert
from queuert import Attempt, Handlers, Worker
from queuert.adapters.in_process import InProcessNotify
from queuert.adapters.sqlite import SqliteHub, watch
from queuert.adapters.sqlite.watch import Watch
from queuert.ports.notify import MISSED

JOURNALS = ["wal", "delete"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs ü#?.db"


def connect(path: Path, journal: str = "wal") -> Any:
    connection = sqlite3.connect(path, isolation_level=None, timeout=5, check_same_thread=False)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS note (text TEXT)")
    return closing(connection)


def write(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO note VALUES ('x')")


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "queuert-sqlite-watch"]


def spin(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 45
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


# What counts as news. The thread sleeps; the test looks in its place.


@pytest.fixture
def by_hand(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Watch]]:
    monkeypatch.setattr(watch, "SLOW", 3600.0)
    made: list[Watch] = []

    def start() -> Watch:
        made.append(Watch(str(path), lambda: None))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.stop()
        each.thread.join()


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_commit_of_another_is_news_once(path: Path, by_hand: Callable[[], Watch], journal: str) -> None:
    with connect(path, journal) as other:
        eye = by_hand()
        assert not eye._have_others_written()
        write(other)
        write(other)
        assert eye._have_others_written()
        assert not eye._have_others_written()


@pytest.mark.parametrize("journal", JOURNALS)
def test_reading_rolling_back_and_empty_transactions_are_none(
    path: Path, by_hand: Callable[[], Watch], journal: str
) -> None:
    """A worker that asks and finds nothing must not wake the others, nor they him."""
    with connect(path, journal) as other:
        eye = by_hand()
        other.execute("SELECT * FROM note").fetchall()
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE note SET text = 'y' WHERE text = 'nowhere'")
        other.execute("COMMIT")
        other.execute("BEGIN IMMEDIATE")
        write(other)
        other.execute("ROLLBACK")
        assert not eye._have_others_written()


@pytest.mark.parametrize("journal", JOURNALS)
def test_commits_of_our_own_are_none(path: Path, by_hand: Callable[[], Watch], journal: str) -> None:
    with connect(path, journal) as one, connect(path, journal) as two:
        eye = by_hand()
        for ours in (one, two, two, one, two):
            ours.execute("BEGIN IMMEDIATE")
            write(ours)
            with eye.own_commit(ours):
                ours.execute("COMMIT")
        assert not eye._have_others_written()


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_commit_of_another_just_before_ours_is_news(path: Path, by_hand: Callable[[], Watch], journal: str) -> None:
    with connect(path, journal) as ours, connect(path, journal) as other:
        eye = by_hand()
        write(other)
        ours.execute("BEGIN IMMEDIATE")
        write(ours)
        with eye.own_commit(ours):
            ours.execute("COMMIT")
        assert eye._have_others_written()
        assert not eye._have_others_written()


@pytest.mark.parametrize("journal", JOURNALS)
def test_a_commit_of_another_right_after_ours_is_news(path: Path, by_hand: Callable[[], Watch], journal: str) -> None:
    """Between our COMMIT and our look at the number."""
    with connect(path, journal) as ours, connect(path, journal) as other:
        eye = by_hand()
        ours.execute("BEGIN IMMEDIATE")
        write(ours)
        with eye.own_commit(ours):
            ours.execute("COMMIT")
            write(other)
        assert eye._have_others_written()
        assert not eye._have_others_written()


def test_the_thread_does_not_wait_for_a_commit_of_ours(path: Path, by_hand: Callable[[], Watch]) -> None:
    with connect(path) as ours, connect(path) as other:
        eye = by_hand()
        write(other)
        ours.execute("BEGIN IMMEDIATE")
        write(ours)
        with eye.own_commit(ours):
            assert not eye._have_others_written()
            ours.execute("COMMIT")
        assert eye._have_others_written()


def test_a_commit_that_fails_is_the_callers_alone(path: Path, by_hand: Callable[[], Watch]) -> None:
    with connect(path) as ours, connect(path) as other:
        eye = by_hand()
        ours.execute("BEGIN IMMEDIATE")
        with pytest.raises(RuntimeError, match="disk"), eye.own_commit(ours):
            raise RuntimeError("disk")
        ours.execute("ROLLBACK")
        assert not eye._have_others_written()
        write(other)
        assert eye._have_others_written()


def test_a_connection_that_cannot_tell_does_no_harm(path: Path, by_hand: Callable[[], Watch]) -> None:
    with connect(path) as ours:
        eye = by_hand()
        ours.execute("BEGIN IMMEDIATE")
        write(ours)
        with eye.own_commit(ours):
            ours.execute("COMMIT")
            ours.close()
        assert eye._have_others_written()


def test_a_commit_after_the_end_is_just_a_commit(path: Path) -> None:
    with connect(path) as ours:
        eye = Watch(str(path), lambda: None)
        eye.start()
        eye.stop()
        eye.thread.join()
        ours.execute("BEGIN IMMEDIATE")
        write(ours)
        with eye.own_commit(ours):
            ours.execute("COMMIT")
        assert eye._connection is None


# What may happen to the file


def test_a_file_that_is_not_there_yet(path: Path, by_hand: Callable[[], Watch]) -> None:
    eye = by_hand()
    assert not eye._have_others_written()
    assert not path.exists()
    with connect(path):
        assert eye._have_others_written()
        assert not eye._have_others_written()


def test_a_file_that_is_deleted_and_one_that_takes_its_place(
    path: Path, tmp_path: Path, by_hand: Callable[[], Watch]
) -> None:
    with connect(path, "delete"):
        eye = by_hand()
    path.unlink()
    assert not eye._have_others_written()
    with connect(tmp_path / "new.db", "delete") as other:
        (tmp_path / "new.db").rename(path)
        assert eye._have_others_written()
        assert not eye._have_others_written()
        with connect(path, "delete") as again:
            write(again)
        assert eye._have_others_written()
        other.close()


def test_a_locked_file_is_looked_at_later(path: Path, by_hand: Callable[[], Watch]) -> None:
    with connect(path, "delete") as other:
        other.execute("BEGIN EXCLUSIVE")
        eye = by_hand()
        assert not eye._have_others_written()
        write(other)
        other.execute("COMMIT")
        assert eye._have_others_written()
        other.execute("BEGIN EXCLUSIVE")
        write(other)
        assert not eye._have_others_written()
        other.execute("COMMIT")
        assert eye._have_others_written()


def test_a_file_that_is_no_database_for_a_while(path: Path, tmp_path: Path, by_hand: Callable[[], Watch]) -> None:
    with connect(tmp_path / "good.db", "delete"):
        pass
    path.write_bytes(b"no database" * 1000)
    eye = by_hand()
    for _ in range(3):
        assert not eye._have_others_written()
    (tmp_path / "good.db").replace(path)
    assert eye._have_others_written()


def test_the_journal_mode_changes_meanwhile(path: Path, by_hand: Callable[[], Watch]) -> None:
    with connect(path, "delete"):
        eye = by_hand()
    with connect(path, "wal") as other:
        assert eye._have_others_written()
        write(other)
        assert eye._have_others_written()


# The hub


class Ear:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, value: str) -> None:
        self.heard.append(value)


def test_every_listener_is_told_that_it_may_have_missed_something(path: Path) -> None:
    with connect(path) as other:
        hub = SqliteHub(path)
        ears = [Ear() for _ in range(4)]
        ends = [
            hub.subscribe("job_scheduled", ears[0]),
            hub.subscribe("job_scheduled", ears[1]),
            hub.subscribe("chain_ended", ears[2]),
            hub.subscribe("ownership_lost", ears[3]),
        ]
        write(other)
        spin(lambda: all(ear.heard for ear in ears))
        assert [ear.heard for ear in ears] == [[MISSED]] * 4
        for end in ends:
            hub.unsubscribe(end)
        assert not watchers()


def test_a_busy_neighbour_is_heard_of_so_often_and_no_more(path: Path) -> None:
    with connect(path) as other:
        hub = SqliteHub(path)
        ear = Ear()
        began = time.monotonic()
        end = hub.subscribe("job_scheduled", ear)
        while len(ear.heard) < 5:
            write(other)
        hub.unsubscribe(end)
        took = time.monotonic() - began
        assert len(ear.heard) <= took / watch.DEBOUNCE + 1


def test_a_listener_that_fails_does_not_end_the_watch(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(value: str) -> None:
        raise RuntimeError(f"cannot hear {value!r}")

    with connect(path) as other:
        hub = SqliteHub(path)
        ear = Ear()
        ends = [hub.subscribe("job_scheduled", fail), hub.subscribe("job_scheduled", ear)]
        for number in range(2):
            write(other)
            spin(lambda number=number: len(ear.heard) > number)  # type: ignore[misc]
        for end in ends:
            hub.unsubscribe(end)
    assert "a listener for job_scheduled failed" in caplog.text


def test_a_listener_may_end_the_watch_itself(path: Path) -> None:
    """In the watching thread, which cannot wait for its own end."""
    with connect(path) as other:
        hub = SqliteHub(path)
        ends: list[object] = []

        def stop(value: str) -> None:
            hub.unsubscribe(ends[0])

        ends.append(hub.subscribe("job_scheduled", stop))
        write(other)
        spin(lambda: not watchers())
        ear = Ear()
        again = hub.subscribe("job_scheduled", ear)
        write(other)
        spin(lambda: bool(ear.heard))
        hub.unsubscribe(again)
        assert not watchers()


async def test_many_clients_share_one_thread(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with queuert.connect(url, jobs=[Step]) as one, queuert.connect(url, jobs=[Step]) as two:
        assert not watchers(), "nobody listens yet"
        handlers = Handlers[Any]()

        @handlers.handles(Step)
        async def step(attempt: Attempt[Step]) -> int:
            return 1

        async with Worker(one, handlers, poll_interval=3600) as first, Worker(two, handlers, poll_interval=3600):
            await first.drain()
            with queuert.connect_sync(url, jobs=[Step]) as three:
                with three.transaction() as tx:
                    chain = three.start(tx, Step())
                assert await one.wait(chain, timeout=45) == 1
                assert await two.wait(chain, timeout=45) == 1
                assert three.wait(chain, timeout=45) == 1
                assert len(watchers()) == 1
    assert not watchers()


# What it costs in queries


async def test_an_idle_worker_asks_once_for_each_word_from_outside(tmp_path: Path) -> None:
    """And its own asking, which finds nothing, wakes nobody: neither itself nor the other one."""
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    one, two = Points(), Points()
    hubs = [SqliteHub(path), SqliteHub(path)]  # as in two processes
    channels = [InProcessNotify(hub) for hub in hubs]
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return 1

    async with (
        watched(queuert.connect(url, jobs=[Step]), one, notify=channels[0]) as first,
        watched(queuert.connect(url, jobs=[Step]), two, notify=channels[1]) as second,
        Worker(first, handlers, poll_interval=3600) as a,
        Worker(second, handlers, poll_interval=3600) as b,
    ):
        await a.drain()
        await b.drain()
        with connect(path) as other:

            def have_asked(wanted: list[int]) -> bool:
                return all(points.counts["claim"] >= count for points, count in zip((one, two), wanted, strict=True))

            async def asked_once_each() -> bool:
                # On a busy machine, a word from before may arrive late: then it is counted again.
                await asyncio.sleep(5 * watch.DEBOUNCE)
                before = [points.counts["claim"] for points in (one, two)]
                for number in range(1, 4):
                    write(other)
                    await eventually(partial(have_asked, [count + number for count in before]))
                await asyncio.sleep(5 * watch.DEBOUNCE)
                return [one.counts["claim"], two.counts["claim"]] == [count + 3 for count in before]

            await eventually(asked_once_each)
        claims = one.counts["claim"] + two.counts["claim"]
        ear = Ear()
        end = hubs[0].subscribe("job_scheduled", ear)
        await asyncio.sleep(5 * watch.DEBOUNCE)  # the negative: whoever woke himself would do so now
        assert ear.heard == []
        assert one.counts["claim"] + two.counts["claim"] == claims
        hubs[0].unsubscribe(end)


async def test_the_work_of_the_process_itself_is_no_news(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        async with attempt.complete() as tx:
            tx.connection.execute("INSERT INTO note VALUES ('done')")
            return attempt.job.number

    with connect(path) as other:
        async with queuert.connect(f"sqlite:///{path}", jobs=[Step], poll_interval=3600) as client:
            ear = Ear()
            await client.sessions.channel.listen("chain_ended", ear)
            async with Worker(client, handlers, poll_interval=3600, concurrency=4):
                for number in range(20):
                    async with client.transaction() as tx:
                        chain = await client.start(tx, Step(number=number))
                    assert await client.wait(chain, timeout=45) == number
                assert MISSED not in ear.heard
                assert len(ear.heard) == 20
                write(other)
                await eventually(lambda: MISSED in ear.heard)


# Fork


async def test_a_forked_child_has_a_watch_of_its_own(tmp_path: Path) -> None:
    async with child("forking", f"sqlite:///{tmp_path / 'jobs.db'}") as program:
        assert await program.says() == "child: 7"
        assert await program.says() == "parent: 8"
        assert await program.exit_code() == 0
