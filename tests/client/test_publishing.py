"""A channel that hangs holds up no commit for long, with either client."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest
from tests.support.jobs import Greet
from tests.support.worlds import World, start

from queuert import ClientClosed, NotifyUnavailable, loop_thread
from queuert.adapters.in_process import InProcessNotify
from queuert.operations import publishing
from queuert.ports.sync_notify import SyncNotify


class Hanging(InProcessNotify):
    """Its server takes the message and does not answer."""

    immediate = False

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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, to be moved on by hand; patience is short."""
    now = [1000.0]
    monkeypatch.setattr(publishing, "PATIENCE", 0.05)
    monkeypatch.setattr(publishing, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def hanging() -> Hanging:
    return Hanging()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("queuert")]


async def test_a_call_that_hangs_is_given_up(world: World, hanging: Any, clock: list[float]) -> None:
    async with world.client([Greet], notify=hanging) as client:
        await start(client, Greet())
        assert (hanging.asked, client.hook_failures) == (1, 1)
        await start(client, Greet())  # the channel is left alone, and this one waits for nothing
        assert (hanging.asked, client.hook_failures) == (1, 2)
        clock[0] += publishing.SILENCE + 1
        hanging.hangs = False
        await start(client, Greet())
        assert (hanging.asked, client.hook_failures) == (2, 2)
    assert world.count() == 3
    assert hanging.given_up == 1
    assert not threads()


async def test_a_client_is_closed_while_its_channel_hangs(world: World, hanging: Any, clock: list[float]) -> None:
    async with world.client([Greet], notify=hanging) as client:
        await start(client, Greet())
    assert world.count() == 1


def bounded(channel: Hanging) -> SyncNotify:
    return SyncNotify(publishing.BoundedNotify(channel))


def test_a_call_that_never_ends_keeps_nothing_back(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """It even ignores its cancellation."""
    let_go = threading.Event()

    class Deaf(Hanging):
        async def provide_wake_hints(self, counts: Any) -> None:
            while not let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

    monkeypatch.setattr(loop_thread, "PATIENCE", 0.2)
    channel = Deaf()
    publisher, heard = bounded(channel), list[str]()
    publisher.listen("chain_ended", heard.append)
    with pytest.raises(NotifyUnavailable, match="did not answer within"):
        publisher.provide_wake_hints({"a": 1})
    publisher.publish("chain_ended", ["fresh"])
    assert heard == ["fresh"]
    let_go.set()
    monkeypatch.undo()
    publisher.close()
    assert not threads()


def test_a_channel_that_blocks_the_loop_holds_up_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    class Blocking(Hanging):
        async def provide_wake_hints(self, counts: Any) -> None:
            let_go.wait()

    monkeypatch.setattr(loop_thread, "PATIENCE", 0.05)
    publisher = bounded(Blocking())
    for _ in range(2):
        with pytest.raises(NotifyUnavailable, match="did not answer within"):
            publisher.provide_wake_hints({"a": 1})
    with pytest.raises(NotifyUnavailable, match="did not answer within"):
        publisher.close()
    let_go.set()
    for thread in threads():
        thread.join(30)
    assert not threads()


def test_errors_of_the_channel_come_through(clock: list[float]) -> None:
    channel = Hanging()
    publisher = bounded(channel)
    asyncio.run(channel.close())
    with pytest.raises(ClientClosed):
        publisher.publish("job_scheduled", ["a"])
    publisher.close()
    publisher.close()
    assert not threads()


def test_an_immediate_channel_needs_no_thread() -> None:
    publisher = SyncNotify(publishing.BoundedNotify(InProcessNotify()))
    publisher.publish("job_scheduled", ["a"])
    assert not threads()


def test_a_thread_that_is_gone_is_replaced() -> None:
    """As after a fork."""
    channel = Hanging()
    channel.hangs = False
    publisher = bounded(channel)
    for _ in range(2):
        publisher.publish("job_scheduled", ["a"])
        (thread,) = threads()
        thread.end()  # type: ignore[attr-defined]
        assert not threads()
    publisher.close()
