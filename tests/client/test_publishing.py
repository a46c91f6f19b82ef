"""A channel that hangs holds up no commit for long, with either client, even if commits wait for it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from typing import Any

import pytest
from tests.behaviour.steps import eventually
from tests.support.jobs import Greet
from tests.support.worlds import World, start

from queuert import ClientClosed, NotifyUnavailable
from queuert.adapters.in_process import InProcessNotify
from queuert.base import loop_thread
from queuert.base.patience import PatientTimeout
from queuert.engine import publishing
from queuert.ports.sync_notify import SyncNotify


class Hanging(InProcessNotify):
    """Its server takes the message and does not answer."""

    immediate = False

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.given_up = 0
        self.hangs = True
        self.answer: asyncio.Event

    def answer_soon(self) -> None:
        """From any thread."""
        self.hangs = False
        self.loop.call_soon_threadsafe(self.answer.set)

    async def provide_wake_hints(self, counts: Any) -> None:
        self.asked += 1
        self.loop = asyncio.get_running_loop()
        if self.hangs:
            self.answer = asyncio.Event()
            try:
                await self.answer.wait()
            except asyncio.CancelledError:
                self.given_up += 1
                raise


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "PUBLISH_SECONDS", 0.05)


@pytest.fixture
def hanging() -> Hanging:
    return Hanging()


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("queuert")]


@pytest.mark.usefixtures("short_patience")
async def test_a_call_that_hangs_is_left_alone(world: World, hanging: Any) -> None:
    async with world.client([Greet], notify=hanging, announce="wait") as client:
        await start(client, Greet())
        assert client.hook_failures == 1
        await eventually(lambda: (hanging.asked, hanging.given_up) == (2, 1))  # the call is repeated, without us
        for _ in range(3):
            await start(client, Greet())  # the channel is left alone, and this one waits for nothing
        assert (hanging.asked, client.hook_failures) == (2, 4)
    assert world.count() == 4
    assert hanging.given_up == 2
    assert not threads()


@pytest.mark.usefixtures("short_patience")
async def test_the_next_call_after_one_that_was_given_up_tries_again(
    world: World, hanging: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "GIVEN_UP_AFTER", 0.001)
    async with world.client([Greet], notify=hanging, announce="wait") as client:
        await start(client, Greet())
        await eventually(lambda: hanging.given_up == 2)
        hanging.hangs = False
        await start(client, Greet())
        assert (hanging.asked, client.hook_failures) == (3, 1)


@pytest.mark.usefixtures("short_patience")
async def test_publishing_goes_on_as_soon_as_the_channel_answers() -> None:
    """However long it hung: no time is waited for."""
    channel = Hanging()
    bounded = publishing.BoundedNotify(channel)
    with pytest.raises(NotifyUnavailable, match="took longer"):
        await bounded.provide_wake_hints({"a": 1})
    with pytest.raises(NotifyUnavailable, match="has not answered an earlier call"):
        await bounded.publish("job_scheduled", ["a"])
    await eventually(lambda: channel.asked == 2)
    channel.answer_soon()
    for _ in range(3):
        await asyncio.sleep(0)  # the call that was repeated ends
    await bounded.publish("job_scheduled", ["a"])
    await bounded.provide_wake_hints({"a": 1})
    assert (channel.asked, channel.given_up) == (3, 1)
    await bounded.close()


@pytest.mark.usefixtures("short_patience")
async def test_a_pause_of_the_whole_process_is_not_the_channels_fault() -> None:
    """The answer has arrived while nothing ran here, and all timers have ended."""

    class Answering(Hanging):
        async def publish(self, topic: Any, values: Any) -> None:
            asyncio.get_running_loop().call_soon(time.sleep, 3 * publishing.PUBLISH_SECONDS)
            await asyncio.sleep(publishing.PUBLISH_SECONDS / 2)

    bounded = publishing.BoundedNotify(Answering())
    for _ in range(3):
        await bounded.publish("job_scheduled", ["a"])
    await bounded.close()


@pytest.mark.usefixtures("short_patience")
async def test_a_failure_that_repeats_is_logged_once_with_a_count(
    world: World, hanging: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.client([Greet], notify=hanging, announce="wait") as client:
        for _ in range(50):
            await start(client, Greet())
        (record,) = caplog.records
        assert record.levelname == "ERROR"
        assert "after-commit work failed (Notifications)" in record.getMessage()
        hanging.answer_soon()
        failures = client.hook_failures

        async def published() -> bool:
            nonlocal failures
            before, failures = failures, client.hook_failures
            await start(client, Greet())
            return client.hook_failures == before == failures

        await eventually(published)
        _, record = caplog.records
        assert (
            record.getMessage() == f"Notifications works again; it had failed {failures - 1} times more than was logged"
        )


@pytest.mark.usefixtures("short_patience")
async def test_a_client_is_closed_while_its_channel_hangs(world: World, hanging: Any) -> None:
    async with world.client([Greet], notify=hanging, announce="wait") as client:
        await start(client, Greet())
    assert world.count() == 1


async def test_what_needs_no_io_needs_no_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Noting(InProcessNotify):
        immediate = False

        def __init__(self, can: bool) -> None:
            super().__init__()
            self.noted: list[Any] = []
            self.can = can

        def provide_wake_hints_now(self, counts: Any) -> bool:
            self.noted.append(counts)
            return self.can

    async def number(channel: Noting) -> int:
        """Of the time limits that it takes."""
        limits.clear()
        await publishing.BoundedNotify(channel).provide_wake_hints({"a": 1})
        assert channel.noted == [{"a": 1}]
        return len(limits)

    limits = list[float]()

    class Counted(PatientTimeout):
        def __init__(self, seconds: float) -> None:
            super().__init__(seconds)
            limits.append(seconds)

    monkeypatch.setattr(publishing, "PatientTimeout", Counted)
    able, unable = Noting(can=True), Noting(can=False)
    assert (await number(able), await number(unable)) == (0, 1)
    assert (able.hub._hints, unable.hub._hints) == ({}, {"a": 1})


def bounded(channel: Hanging) -> SyncNotify:
    return SyncNotify(publishing.BoundedNotify(channel))


@pytest.mark.usefixtures("short_patience")
def test_a_call_that_never_ends_keeps_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It even ignores its cancellation."""
    let_go = threading.Event()

    class Deaf(Hanging):
        async def provide_wake_hints(self, counts: Any) -> None:
            while not let_go.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

    monkeypatch.setattr(loop_thread, "CALL_SECONDS", 0.2)
    channel = Deaf()
    publisher, heard = bounded(channel), list[str]()
    publisher.listen("chain_ended", heard.append)
    with pytest.raises(NotifyUnavailable, match="did not answer within"):
        publisher.provide_wake_hints({"a": 1})
    monkeypatch.undo()
    publisher.publish("chain_ended", ["fresh"])
    assert heard == ["fresh"]
    let_go.set()
    publisher.close()
    assert not threads()


def test_a_channel_that_blocks_the_loop_holds_up_nobody_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    let_go = threading.Event()

    class Blocking(Hanging):
        async def provide_wake_hints(self, counts: Any) -> None:
            let_go.wait()

    monkeypatch.setattr(loop_thread, "CALL_SECONDS", 0.05)
    publisher = bounded(Blocking())
    for _ in range(2):
        with pytest.raises(NotifyUnavailable, match="did not answer within"):
            publisher.provide_wake_hints({"a": 1})
    with pytest.raises(NotifyUnavailable, match="did not answer within"):
        publisher.close()
    let_go.set()
    for thread in threads():
        thread.join(45)
    assert not threads()


@pytest.mark.usefixtures("short_patience")
def test_errors_of_the_channel_come_through() -> None:
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
