"""Notifications go out in the background: no commit waits for them, and they are not forgotten."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.steps import eventually
from tests.support.jobs import Greet
from tests.support.worlds import World, start

import queuert
from queuert import InvalidArgument, Observer
from queuert.adapters.in_process import InProcessNotify
from queuert.engine import announcing, publishing


class Slow(InProcessNotify):
    """A channel that answers when it is told to, in any thread."""

    immediate = False

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[str, list[str]]] = []
        self.hints: list[dict[str, int]] = []
        self.held = threading.Event()
        self.released = threading.Event()
        self.error: Exception | None = None

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self.hints.append(dict(counts))

    async def publish(self, topic: str, values: Sequence[str]) -> None:
        self.held.set()
        while not self.released.is_set():
            await asyncio.sleep(0.001)
        if self.error is not None:
            raise self.error
        self.sent.append((topic, list(values)))


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(publishing, "PUBLISH_SECONDS", 3600.0)
    return Slow()


async def test_commits_do_not_wait_and_are_announced_together(world: World, slow: Any) -> None:
    async with world.client([Greet], notify=slow) as client:
        await start(client, Greet())
        await eventually(slow.held.is_set)
        for _ in range(4):
            await start(client, Greet())
        await client.submit(Greet())
        assert (slow.sent, slow.hints, client.hook_failures) == ([], [{"greet": 1}], 0)
        slow.released.set()
    # `close` has waited for the second batch.
    assert slow.sent == [("job_scheduled", ["greet"])] * 2
    assert slow.hints == [{"greet": 1}, {"greet": 5}]
    assert client.hook_failures == 0


async def test_a_rollback_announces_nothing(world: World, slow: Any) -> None:
    slow.released.set()
    async with world.client([Greet], notify=slow) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                _ = 1 / 0
    assert slow.sent == []


async def test_every_commit_whose_announcement_failed_is_counted(
    world: World, slow: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Told(Observer):
        def notify_error(self, **facts: Any) -> None:
            errors.append(facts["operation"])

    errors: list[str] = []
    slow.error = RuntimeError("no channel")
    async with world.client([Greet], notify=slow, observers=[Told()]) as client:
        await start(client, Greet())
        await eventually(slow.held.is_set)
        await start(client, Greet())
        await start(client, Greet())
        slow.released.set()
        await eventually(lambda: client.hook_failures == 3)
        assert errors == ["job_scheduled"] * 2
        (record,) = caplog.records
        assert "after-commit work failed (Notifications)" in record.getMessage()
        slow.error = None
        await start(client, Greet())
    assert slow.sent == [("job_scheduled", ["greet"])]


async def test_a_callback_does_not_wait_for_the_announcement(world: World, slow: Any) -> None:
    called: list[int] = []
    async with world.client([Greet], notify=slow) as client:
        async with client.transaction() as tx:
            await client.start(tx, Greet())
            tx.after_commit(lambda: called.append(len(slow.sent)))
        assert called == [0]
        slow.released.set()


async def test_commits_wait_while_too_much_is_waiting(world: World, slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "MOST", 2)
    async with world.client([Greet], notify=slow) as client:
        await start(client, Greet())
        await eventually(slow.held.is_set)
        await start(client, Greet())
        await start(client, Greet())

        def last() -> None:
            asyncio.run(start(client, Greet()))

        # The sync client blocks its thread.
        waiting = asyncio.ensure_future(start(client, Greet()) if world.is_async else asyncio.to_thread(last))
        await eventually(lambda: world.count() == 4)
        assert not waiting.done()
        slow.released.set()
        await asyncio.wait_for(waiting, 45)
    assert slow.hints == [{"greet": 1}, {"greet": 3}]


def test_an_event_loop_that_ends_loses_announcements_and_counts_them(slow: Any) -> None:
    async def main() -> None:
        client = queuert.connect("memory://", jobs=[Greet], notify=None)
        client = type(client)(client.sessions.storage, slow, [Greet])
        client.sessions.open()
        clients.append(client)
        await start(client, Greet())
        await eventually(slow.held.is_set)
        await start(client, Greet())
        await start(client, Greet())

    clients: list[Any] = []
    asyncio.run(main())
    assert clients[0].hook_failures == 3
    assert slow.sent == []


async def test_a_task_that_is_cancelled_before_it_begins(slow: Any) -> None:
    """As by a program that cancels all tasks. Later commits are announced, and closing ends."""
    slow.released.set()
    source = queuert.connect("memory://", jobs=[Greet], notify=None)
    async with type(source)(source.sessions.storage, slow, [Greet]) as client:
        await start(client, Greet())
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "queuert-announcer")
        assert task.cancel()
        await asyncio.wait([task])
        assert (client.hook_failures, slow.sent) == (1, [])
        await start(client, Greet())
        await eventually(lambda: slow.sent == [("job_scheduled", ["greet"])])
        await start(client, Greet())
        (task,) = (task for task in asyncio.all_tasks() if task.get_name() == "queuert-announcer")
        assert task.cancel()
        await asyncio.wait_for(client.close(), 45)
    assert client.hook_failures == 2


def test_what_the_option_takes() -> None:
    options: Any = {"announce": "later"}
    with pytest.raises(InvalidArgument, match='announce must be "background" or "wait"'):
        queuert.connect("memory://", jobs=[Greet], **options)


LEFT_OPEN = """
import asyncio, os, sys
import queuert
from queuert import EntryJob

class Note(EntryJob[None], name="note"):
    pass

class Channel:
    async def publish(self, channel, messages):
        await asyncio.sleep(float(sys.argv[2]))
        print("published")

    async def subscribe(self, channels, on_message, ready):
        ready()
        await asyncio.Event().wait()

client = queuert.connect_sync(f"sqlite:///{sys.argv[1]}", jobs=[Note], notify=Channel())
client.__enter__()
client.submit(Note())
if sys.argv[3] == "fork" and os.fork() == 0:
    sys.exit()
print("committed", flush=True)
"""


@pytest.mark.parametrize("fork", ["", "fork"])
def test_the_end_of_the_process_waits_for_a_client_that_is_never_closed(tmp_path: Path, fork: str) -> None:
    found = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", LEFT_OPEN, tmp_path / "jobs.db", "0.2", fork],
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert (found.stdout, found.stderr) == ("committed\npublished\n", "")


def test_the_end_of_the_process_does_not_wait_for_ever(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", LEFT_OPEN, tmp_path / "jobs.db", "3600", ""],
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert found.stdout == "committed\n"
