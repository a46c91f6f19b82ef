"""The listener that all brokers share, with providers that behave badly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.support.ears import Ear

from queuert import ClientClosed, NotifyUnavailable
from queuert.adapters.broadcast import BroadcastNotify, listener
from queuert.ports.notify import MISSED, Announced, OnMessage


class Provider:
    """Within the process. `act` is called in each subscription, before it is active."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.subscribed = 0
        self.published: list[tuple[str, list[str]]] = []
        self.closed = 0
        self.lost = asyncio.Event()
        self._on_message: OnMessage = lambda channel, payload: None

    async def act(self) -> None: ...

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        self.published.append((channel, list(messages)))
        for message in messages:
            self._on_message(channel, message)

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        self.calls.append(list(channels))
        self.subscribed += 1
        try:
            await self.act()
            self._on_message = on_message
            self.lost.clear()
            ready()
            await self.lost.wait()
        finally:
            self.subscribed -= 1
            self._on_message = lambda channel, payload: None

    async def close(self) -> None:
        assert self.subscribed == 0, "the subscription has ended by now"
        self.closed += 1


def tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("queuert")]


@pytest.mark.parametrize("end", ["connected", "failed"])
async def test_a_driver_that_swallows_the_end(end: str) -> None:
    """Before Python 3.12 `wait_for` may keep a cancellation for itself."""

    class Swallowing(Provider):
        async def act(self) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if end == "failed":
                    raise OSError("no connection") from None

    began, provider = asyncio.Event(), Swallowing()
    adapter = BroadcastNotify(provider)
    listening = asyncio.create_task(adapter.listen("chain_ended", Ear()))
    await began.wait()
    async with asyncio.timeout(45):
        await adapter.close()
    with pytest.raises(ClientClosed):
        await listening
    assert (provider.subscribed, provider.closed) == (0, 1)
    assert not tasks()


async def test_a_subscription_that_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "CANCEL_AGAIN", 0.01)
    let_go = asyncio.Event()

    class Stubborn(Provider):
        async def close(self) -> None: ...

        async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
            self._on_message = on_message
            ready()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue

    adapter = BroadcastNotify(Stubborn())
    await adapter.listen("chain_ended", Ear())
    async with asyncio.timeout(45):
        await adapter.close()
    assert [record.getMessage() for record in caplog.records if "has not ended" in record.getMessage()]
    let_go.set()
    await asyncio.sleep(0.01)
    assert not tasks()


async def test_only_what_is_wanted_is_subscribed_to() -> None:
    provider = Provider()
    adapter, ear, other = BroadcastNotify(provider, prefix="p"), Ear(), Ear()
    await adapter.listen("chain_ended", ear)
    assert [channel.partition("echo")[0] for channel in provider.calls[-1]] == ["p.chain_completed", "p."]
    await adapter.listen("chain_ended", other)
    assert len(provider.calls) == 1
    await adapter.listen("ownership_lost", other)
    await adapter.listen("job_scheduled", other)
    assert len(provider.calls) == 2
    names = ["p.job_scheduled", "p.chain_completed", "p.ownership_lost", "p.pause_changed", "p.schedule_changed"]
    assert provider.calls[-1][:5] == names
    assert ear.heard == [MISSED], "nothing was heard between the two subscriptions"
    await adapter.publish("chain_ended", ["a"])
    await adapter.publish("job_scheduled", ["b"])
    assert (ear.messages, other.messages) == (["a"], ["a", "b"])
    await adapter.close()


@pytest.mark.parametrize("moment", range(6))
async def test_more_topics_while_the_subscription_begins(moment: int) -> None:
    provider = Provider()
    adapter, ears = BroadcastNotify(provider), [Ear(), Ear()]
    first = asyncio.create_task(adapter.listen("chain_ended", ears[0]))
    for _ in range(moment):
        await asyncio.sleep(0)
    async with asyncio.timeout(45):
        await adapter.listen("job_scheduled", ears[1])
        await first
    await adapter.publish("chain_ended", ["a"])
    await adapter.publish("job_scheduled", ["b"])
    assert [ear.messages for ear in ears] == [["a"], ["b"]]
    assert provider.subscribed == 1
    await adapter.close()
    assert not tasks()


async def test_one_subscription_at_a_time() -> None:
    most = 0

    class Slow(Provider):
        async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
            nonlocal most
            most = max(most, self.subscribed + 1)
            try:
                await super().subscribe(channels, on_message, ready)
            finally:
                self.subscribed += 1
                await asyncio.sleep(0.01)  # it takes a while to go
                self.subscribed -= 1

    provider = Slow()
    adapter = BroadcastNotify(provider)

    async def come_and_go(topic: Any) -> None:
        for _ in range(5):
            ear = Ear()
            dispose = await adapter.listen(topic, ear)
            await asyncio.sleep(0)
            await dispose()

    async with asyncio.timeout(45):
        await asyncio.gather(*(come_and_go(topic) for topic in ("chain_ended", "job_scheduled", "chain_ended")))
    assert most == 1
    await adapter.close()


async def test_a_broker_that_loses_the_first_messages() -> None:
    """Listening has begun only when a message of our own has come back."""

    class Forgetful(Provider):
        lose = 3

        async def publish(self, channel: str, messages: Sequence[str]) -> None:
            if self.lose:
                self.lose -= 1
            else:
                await super().publish(channel, messages)

    provider, ear = Forgetful(), Ear()
    adapter = BroadcastNotify(provider)
    async with asyncio.timeout(45):
        await adapter.listen("chain_ended", ear)
    assert provider.lose == 0
    await adapter.publish("chain_ended", ["a"])
    assert ear.heard == ["a"]
    await adapter.close()


async def test_a_connection_that_dies_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PING_TIMEOUT", 0.05)
    provider, ear = Provider(), Ear()
    adapter = BroadcastNotify(provider)
    adapter.heartbeat = 0.02
    await adapter.listen("chain_ended", ear)
    provider._on_message = lambda channel, payload: None  # no message reaches us any more
    await ear.until(MISSED)
    await adapter.publish("chain_ended", ["again"])
    assert ear.messages == ["again"]
    await adapter.close()


async def test_a_ping_of_the_providers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pinging(Provider):
        def __init__(self) -> None:
            super().__init__()
            self.pinged = asyncio.Event()
            self.dead = False

        async def ping(self) -> None:
            self.pinged.set()
            if self.dead:
                raise OSError("no answer")

    provider, ear = Pinging(), Ear()
    adapter = BroadcastNotify(provider, prefix="p")
    adapter.heartbeat = 0.01
    await adapter.listen("chain_ended", ear)
    assert provider.calls == [["p.chain_completed"]], "no channel for messages to ourselves"
    async with asyncio.timeout(45):
        await provider.pinged.wait()
        assert MISSED not in ear.heard
        provider.dead = True
        await ear.until(MISSED)
    assert not provider.published
    await adapter.close()


async def test_errors_of_the_provider_are_translated() -> None:
    class Broken(Provider):
        async def publish(self, channel: str, messages: Sequence[str]) -> None:
            raise ZeroDivisionError("by design")

        async def act(self) -> None:
            raise KeyError

        async def provide_wake_hints(self, counts: Any) -> None:
            raise OSError("no hints")

        async def consume_wake_hint(self, type_name: str) -> bool:
            raise OSError("no hints")

    adapter = BroadcastNotify(Broken())
    calls: list[tuple[Any, str]] = [
        (adapter.publish("chain_ended", ["a"]), "Broken is unavailable: by design"),
        (adapter.listen("chain_ended", Ear()), "Broken is unavailable: KeyError"),
        (adapter.provide_wake_hints({"a": 1}), "Broken is unavailable: no hints"),
        (adapter.consume_wake_hint("a"), "Broken is unavailable: no hints"),
    ]
    for call, message in calls:
        with pytest.raises(NotifyUnavailable, match=message) as caught:
            await call
        assert caught.value.__cause__ is not None
    await adapter.provide_wake_hints({"a": 0})
    await adapter.close()


async def test_a_provider_that_only_publishes_and_subscribes() -> None:
    class Minimal:
        def __init__(self) -> None:
            self._inner = Provider()
            self.publish, self.subscribe = self._inner.publish, self._inner.subscribe

    adapter, ear = BroadcastNotify(Minimal()), Ear()
    await adapter.provide_wake_hints({"a": 1})
    assert [await adapter.consume_wake_hint("a") for _ in range(3)] == [True] * 3
    await adapter.listen("job_scheduled", ear)
    await adapter.publish("job_scheduled", ["x" * 5000, "y" * 5000])
    assert [len(value) for value in ear.heard] == [5000, 5000]
    await adapter.close()
    await adapter.close()


async def test_jobs_are_counted_until_their_type_is_announced() -> None:
    """So a number never goes with the announcement of another type. Nothing is sent before that."""
    provider, ear = Provider(), Ear()
    adapter = BroadcastNotify(provider)
    await adapter.listen("job_scheduled", ear)
    sent = len(provider.published)
    assert adapter.provide_wake_hints_now({"a": 5, "b": 2})
    await adapter.provide_wake_hints({"a": 10})
    assert len(provider.published) == sent
    for values in (["a"], ["b"], ["a"]):
        await adapter.publish("job_scheduled", values)
    assert adapter.provide_wake_hints_now({"a": 3, "b": 4})
    await adapter.publish("job_scheduled", ["a", "b"])
    draws = [value.draw for value in ear.heard if isinstance(value, Announced)]
    assert [draw.jobs for draw in draws] == [15, 2, 1, 7, 7]
    assert draws[-2] == draws[-1]
    await adapter.close()


async def test_a_provider_with_wake_hints_gets_them_and_announces_without_a_draw() -> None:
    class Keeping(Provider):
        def __init__(self) -> None:
            super().__init__()
            self.provided: list[Any] = []

        async def provide_wake_hints(self, counts: Any) -> None:
            self.provided.append(counts)

        async def consume_wake_hint(self, type_name: str) -> bool:
            return True

    provider, ear = Keeping(), Ear()
    adapter = BroadcastNotify(provider)
    await adapter.listen("job_scheduled", ear)
    assert not adapter.provide_wake_hints_now({"a": 5})
    assert provider.provided == []
    await adapter.provide_wake_hints({"a": 5})
    assert provider.provided == [{"a": 5}]
    await adapter.publish("job_scheduled", ["a"])
    assert [type(value) for value in ear.heard] == [str]
    await adapter.close()


async def test_close_is_called_once_and_last() -> None:
    provider = Provider()
    adapter = BroadcastNotify(provider)
    dispose = await adapter.listen("job_scheduled", Ear())
    await asyncio.gather(adapter.close(), adapter.close())
    await adapter.close()
    await dispose()
    assert provider.closed == 1


def test_another_event_loop() -> None:
    """Once the first loop is closed, the adapter can be used on another one."""
    made: list[Provider] = []

    def make() -> Provider:
        made.append(Provider())
        return made[-1]

    adapter = BroadcastNotify(make)

    async def use() -> None:
        ear = Ear()
        await adapter.listen("job_scheduled", ear)
        await adapter.publish("job_scheduled", ["a"])
        assert ear.heard == ["a"]

    asyncio.run(use())
    asyncio.run(use())
    assert len(made) == 2

    async def close() -> None:
        await adapter.close()

    asyncio.run(close())


async def test_two_event_loops_at_a_time() -> None:
    adapter = BroadcastNotify(Provider)
    await adapter.publish("job_scheduled", ["a"])

    async def elsewhere() -> None:
        with pytest.raises(NotifyUnavailable, match="another event loop"):
            await adapter.publish("job_scheduled", ["a"])

    await asyncio.to_thread(lambda: asyncio.run(elsewhere()))
    await adapter.close()
