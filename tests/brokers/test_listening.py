"""Listeners through bad times, with each broker: they come back by themselves, and hear that they missed something."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.support.brokers import Broker
from tests.support.ears import Ear, ThreadEar
from tests.support.proxy import Proxy

from queuert import ClientClosed, NotifyUnavailable
from queuert.adapters.broadcast import listener
from queuert.ports.notify import MISSED, TOPICS


def tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("queuert")]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("queuert")]


async def test_a_broker_that_is_killed_and_restarted(broker: Broker) -> None:
    adapter, ears = broker.adapter(), [Ear() for _ in TOPICS]
    for topic, ear in zip(TOPICS, ears, strict=True):
        await adapter.listen(topic, ear)
    for number in range(2):
        broker.stop()
        if not broker.keeps:
            with pytest.raises(NotifyUnavailable):
                await adapter.publish("job_scheduled", ["down"])
        broker.start()
        for topic, ear in zip(TOPICS, ears, strict=True):
            await ear.until(MISSED, times=number + 1)
            await adapter.publish(topic, [f"round {number}"])
            await ear.until(f"round {number}")
    assert all(ear.messages == ["round 0", "round 1"] for ear in ears)
    await broker.until_listeners(1)
    await adapter.close()
    assert not tasks()


async def test_a_broker_that_is_killed_and_restarted_under_threads(broker: Broker) -> None:
    adapter, ear = broker.sync_adapter(), ThreadEar()
    adapter.listen("chain_ended", ear)
    broker.stop()
    if not broker.keeps:
        with pytest.raises(NotifyUnavailable):
            adapter.publish("chain_ended", ["down"])
    broker.start()
    await asyncio.to_thread(ear.until, MISSED)
    adapter.publish("chain_ended", ["up"])
    await asyncio.to_thread(ear.until, "up")
    adapter.close()
    assert not threads()


async def test_who_comes_while_the_broker_is_away_is_told_so(broker: Broker) -> None:
    broker.stop()
    adapter, sync_adapter = broker.adapter(), broker.sync_adapter()
    with pytest.raises(NotifyUnavailable):
        await adapter.listen("job_scheduled", Ear())
    with pytest.raises(NotifyUnavailable):
        await asyncio.to_thread(sync_adapter.listen, "chain_ended", ThreadEar())
    async with asyncio.timeout(45):
        while tasks():  # a connection that failed is closed after that is told
            await asyncio.sleep(0.01)
    assert threads() == ["queuert-notify"], "the event loop stays until close()"
    broker.start()
    ear, thread_ear = Ear(), ThreadEar()
    await adapter.listen("chain_ended", ear)
    sync_adapter.listen("chain_ended", thread_ear)
    await adapter.publish("chain_ended", ["a"])
    await ear.until("a")
    await asyncio.to_thread(thread_ear.until, "a")
    sync_adapter.close()
    await adapter.close()


async def test_connections_that_are_cut(broker: Broker, network: Proxy) -> None:
    adapter, ear = broker.adapter(network.port), Ear()
    sync_adapter, thread_ear = broker.sync_adapter(network.port), ThreadEar()
    await adapter.listen("chain_ended", ear)
    await asyncio.to_thread(sync_adapter.listen, "chain_ended", thread_ear)
    network.cut()
    await ear.until(MISSED)
    await asyncio.to_thread(thread_ear.until, MISSED)
    await broker.adapter_says("chain_ended", "again")
    await ear.until("again")
    await asyncio.to_thread(thread_ear.until, "again")
    await broker.until_listeners(2)
    await asyncio.to_thread(sync_adapter.close)
    await adapter.close()


async def test_a_network_that_is_dead_is_noticed(
    broker: Broker, network: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing says that the connection is dead; the server is asked, and does not answer."""
    monkeypatch.setattr(listener, "PING_TIMEOUT", 0.1)
    adapter, ear = broker.adapter(network.port), Ear()
    adapter.heartbeat = 0.05
    await adapter.listen("job_scheduled", ear)
    listening = adapter._current.listener
    outcome = listening._outcome
    network.freeze()
    async with asyncio.timeout(45):
        while listening._outcome is outcome:
            await asyncio.sleep(0.005)
    network.thaw()
    await ear.until(MISSED)
    await broker.adapter_says("job_scheduled", "again")
    await ear.until("again")
    await adapter.close()


async def test_a_sign_of_life_disturbs_nothing(broker: Broker) -> None:
    adapter, ear = broker.adapter(), Ear()
    sync_adapter, thread_ear = broker.sync_adapter(), ThreadEar()
    adapter.heartbeat = sync_adapter.adapter.heartbeat = 0.001
    await adapter.listen("chain_ended", ear)
    sync_adapter.listen("chain_ended", thread_ear)
    numbers = [str(number) for number in range(200)]
    for number in numbers:
        await adapter.publish("chain_ended", [number])
    await ear.until("199")
    await asyncio.to_thread(thread_ear.until, "199")
    assert ear.heard == thread_ear.heard == numbers
    sync_adapter.close()
    await adapter.close()


async def test_what_is_not_ours_is_passed_over(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    adapter, ear = broker.adapter(), Ear()
    sync_adapter, thread_ear = broker.sync_adapter(), ThreadEar()
    await adapter.listen("chain_ended", ear)
    sync_adapter.listen("chain_ended", thread_ear)
    strange = [b"", b"hello", b"\xff\xfe\x00", b"{}", b'"a"', b"[1]", b'["a"', b'[["a"]]', b"null", b"[" * 5000, b"[]"]
    for payload in strange:
        await broker.say("chain_ended", payload)
    await broker.say("chain_ended", b'["", "ours after all"]')
    # Of what two connections publish, either may arrive first.
    await ear.until("ours after all")
    await asyncio.to_thread(thread_ear.until, "ours after all")
    await adapter.publish("chain_ended", ["ours"])
    await ear.until("ours")
    await asyncio.to_thread(thread_ear.until, "ours")
    assert ear.heard == thread_ear.heard == ["ours after all", "ours"]
    ours = [record.getMessage() for record in caplog.records if record.name == "queuert.notify"]
    assert [message.count("that are not ours") for message in ours] == [1, 1]
    sync_adapter.close()
    await adapter.close()


async def test_a_listener_that_cannot_keep_up(broker: Broker, network: Proxy) -> None:
    """It hears everything in the end, or that it missed something; then it hears again."""
    adapter, ear = broker.adapter(network.port), Ear()
    await adapter.listen("chain_ended", ear)
    publisher = broker.adapter()
    network.freeze()
    sent = 0
    while await broker.listeners() and sent < 1000:  # the broker has had enough of it, or takes it all
        await publisher.publish("chain_ended", [f"{sent}-{number}-{'x' * 50}" for number in range(1000)])
        sent += 1
    network.thaw()
    await ear.until_so(lambda: MISSED in ear.heard or len(ear.heard) == 1000 * sent)
    await publisher.publish("chain_ended", ["last"])
    await ear.until("last")
    await publisher.close()
    await adapter.close()


@pytest.mark.parametrize("how", ["one by one", "at once"])
async def test_two_thousand_listeners_share_one_connection(broker: Broker, how: str) -> None:
    adapter = broker.adapter()
    heard: list[str] = []
    number = 2_000
    if how == "at once":
        disposes = await asyncio.gather(*(adapter.listen("chain_ended", heard.append) for _ in range(number)))
    else:
        disposes = [await adapter.listen("chain_ended", heard.append) for _ in range(number)]
    await broker.until_listeners(1)
    last = Ear()
    await adapter.listen("chain_ended", last)
    await adapter.publish("chain_ended", ["a"])
    await last.until("a")
    assert heard == ["a"] * number
    for dispose in disposes:
        await dispose()
    await adapter.close()
    assert not tasks()


async def test_close_while_a_subscription_is_in_flight(broker: Broker, network: Proxy) -> None:
    network.freeze()
    adapter = broker.adapter(network.port)
    subscribing = [asyncio.create_task(adapter.listen("job_scheduled", Ear())) for _ in range(3)]
    await network.connected.wait()
    async with asyncio.timeout(45):
        await adapter.close()
    for result in await asyncio.gather(*subscribing, return_exceptions=True):
        assert isinstance(result, ClientClosed)
    assert not tasks()
    network.thaw()
    for _ in range(3):
        await adapter.close()


async def test_close_while_a_subscription_is_in_flight_in_a_thread(broker: Broker, network: Proxy) -> None:
    network.freeze()
    adapter = broker.sync_adapter(network.port)
    subscribing = asyncio.create_task(asyncio.to_thread(adapter.listen, "chain_ended", ThreadEar()))
    await network.connected.wait()
    closing = asyncio.create_task(asyncio.to_thread(adapter.close))
    async with asyncio.timeout(45):
        while not adapter._closed:
            await asyncio.sleep(0.005)
        network.thaw()
        await closing
        with pytest.raises((ClientClosed, NotifyUnavailable)):
            await subscribing
    assert not threads()
    adapter.close()


async def test_a_subscription_that_is_cancelled(broker: Broker, network: Proxy) -> None:
    network.freeze()
    adapter = broker.adapter(network.port)
    subscribing = asyncio.create_task(adapter.listen("job_scheduled", Ear()))
    await network.connected.wait()
    subscribing.cancel()
    await asyncio.gather(subscribing, return_exceptions=True)
    network.thaw()
    ear = Ear()
    await adapter.listen("job_scheduled", ear)
    await adapter.publish("job_scheduled", ["a"])
    await ear.until("a")
    await adapter.close()
    assert not tasks()


@pytest.mark.parametrize("when", ["up", "down"])
async def test_after_close_nothing_is_done(broker: Broker, when: str) -> None:
    """Closed twice, used and disposed of afterwards; also while the broker is away."""
    adapter, sync_adapter = broker.adapter(), broker.sync_adapter()
    dispose = await adapter.listen("chain_ended", Ear())
    sync_dispose = sync_adapter.listen("chain_ended", ThreadEar())
    if when == "down":
        broker.stop()
    async with asyncio.timeout(45):
        for _ in range(2):
            await adapter.close()
            await asyncio.to_thread(sync_adapter.close)
    await dispose()
    sync_dispose()
    calls: list[Any] = [
        adapter.listen("ownership_lost", Ear()),
        adapter.publish("ownership_lost", ["a"]),
        adapter.publish("job_scheduled", []),
        adapter.provide_wake_hints({"a": 1}),
        adapter.consume_wake_hint("a"),
    ]
    for call in calls:
        with pytest.raises(ClientClosed):
            await call
    for topic in TOPICS:
        with pytest.raises(ClientClosed):
            sync_adapter.publish(topic, ["a"])
    with pytest.raises(ClientClosed):
        sync_adapter.listen("chain_ended", ThreadEar())
    assert not tasks()
    assert not threads()
    if when == "up":
        await broker.until_listeners(0)
