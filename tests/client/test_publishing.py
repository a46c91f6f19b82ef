"""A channel that hangs holds up no commit for long, with either client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.jobs import Greet
from tests.support.worlds import World, start

from queuert import NotifyUnavailable
from queuert.adapters.in_process import InProcessNotify, SyncInProcessNotify
from queuert.operations import publishing


class Hanging(InProcessNotify):
    """Its server takes the message and says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.given_up = 0
        self.hangs = True

    async def provide_wake_hints(self, counts: Any) -> None:
        self.asked += 1
        if self.hangs:
            try:
                await asyncio.Event().wait()
            finally:
                self.given_up += 1


class SyncHanging(SyncInProcessNotify):
    immediate = False

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.hangs = True
        self.let_go = threading.Event()

    def provide_wake_hints(self, counts: Any) -> None:
        self.asked += 1
        if self.hangs:
            self.let_go.wait()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved on by hand; patience is short."""
    now = [1000.0]
    monkeypatch.setattr(publishing, "PATIENCE", 0.05)
    monkeypatch.setattr(publishing, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def hanging(world: World) -> Iterator[Any]:
    found: Any = Hanging() if world.is_async else SyncHanging()
    yield found
    if not world.is_async:
        found.let_go.set()


def publishers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "queuert-publisher"]


async def test_a_call_that_hangs_is_given_up(world: World, hanging: Any, clock: list[float]) -> None:
    async with world.client([Greet], notify=hanging) as client:
        await start(client, Greet())
        assert (hanging.asked, client.hook_failures) == (1, 1)
        await start(client, Greet())  # the channel is left alone, and this one waits for nothing
        assert (hanging.asked, client.hook_failures) == (1, 2)
        clock[0] += publishing.SILENCE + 1
        hanging.hangs = False
        if not world.is_async:
            hanging.let_go.set()
        await start(client, Greet())
        assert (hanging.asked, client.hook_failures) == (2, 2)
    assert world.count() == 3
    if world.is_async:
        assert hanging.given_up == 1


async def test_a_client_is_closed_while_its_channel_hangs(world: World, hanging: Any, clock: list[float]) -> None:
    async with world.client([Greet], notify=hanging) as client:
        await start(client, Greet())
    assert world.count() == 1


def test_a_call_that_never_ends_keeps_nothing_back(clock: list[float]) -> None:
    channel = SyncHanging()
    publisher = publishing.SyncBoundedPublisher(channel)
    heard: list[str] = []
    channel.listen_chain_completed(heard.append)
    with pytest.raises(NotifyUnavailable, match="longer than"):
        publisher.provide_wake_hints({"a": 1})
    (stuck,) = publishers()
    clock[0] += publishing.SILENCE + 1
    publisher.chain_completed(["fresh"])
    assert heard == ["fresh"]
    assert stuck.is_alive()
    channel.let_go.set()
    publisher.stop()
    stuck.join(30)
    assert not publishers()


def test_errors_of_the_channel_come_through(clock: list[float]) -> None:
    channel = SyncHanging()
    publisher = publishing.SyncBoundedPublisher(channel)
    channel.close()
    with pytest.raises(Exception, match="closed"):
        publisher.job_scheduled(["a"])
    publisher.stop()
    publisher.stop()
    assert not publishers()


def test_an_immediate_channel_needs_no_thread() -> None:
    publisher = publishing.SyncBoundedPublisher(SyncInProcessNotify())
    publisher.job_scheduled(["a"])
    assert not publishers()


def test_a_thread_that_is_gone_is_replaced() -> None:
    """As after a fork."""
    channel = SyncHanging()
    channel.hangs = False
    publisher = publishing.SyncBoundedPublisher(channel)
    for _ in range(2):
        publisher.job_scheduled(["a"])
        thread = publisher._thread
        assert thread is not None
        thread.stop()
    publisher.stop()
    assert not publishers()
