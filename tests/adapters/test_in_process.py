"""Notifications inside one process, and the adapters that send none."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from queuert.adapters.in_process import InProcessHub, InProcessNotify, NoNotify
from queuert.errors import ClientClosed
from queuert.ports.notify import TOPICS
from queuert.ports.sync_notify import SyncNotify


async def test_each_topic_reaches_its_own_listeners_in_order() -> None:
    notify = InProcessNotify()
    jobs: list[str] = []
    chains: list[str] = []
    lost: list[str] = []
    await notify.listen("job_scheduled", jobs.append)
    await notify.listen("job_scheduled", jobs.append)
    await notify.listen("chain_ended", chains.append)
    await notify.listen("ownership_lost", lost.append)
    await notify.publish("job_scheduled", ["a", "b"])
    await notify.publish("chain_ended", ["c"])
    await notify.publish("ownership_lost", ["d"])
    assert (jobs, chains, lost) == (["a", "a", "b", "b"], ["c"], ["d"])


async def test_disposed_listeners_hear_nothing_more() -> None:
    notify = InProcessNotify()
    heard: list[str] = []
    first = await notify.listen("chain_ended", heard.append)
    await notify.listen("chain_ended", heard.append)
    await first()
    await first()
    await notify.publish("chain_ended", ["a"])
    assert heard == ["a"]


async def test_a_listener_may_end_another_while_it_is_called() -> None:
    hub = InProcessHub()
    notify = SyncNotify(InProcessNotify(hub))
    heard: list[str] = []
    notify.listen("chain_ended", lambda _: dispose())
    dispose = notify.listen("chain_ended", heard.append)
    notify.publish("chain_ended", ["a", "b"])
    assert heard == []


async def test_a_listener_that_raises_is_logged_and_keeps_nobody_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notify = InProcessNotify()
    heard: list[str] = []

    def broken(value: str) -> None:
        raise ZeroDivisionError

    await notify.listen("job_scheduled", broken)
    await notify.listen("job_scheduled", heard.append)
    with caplog.at_level(logging.ERROR, logger="queuert.notify"):
        await notify.publish("job_scheduled", ["a", "b"])
    assert heard == ["a", "b"]
    assert len(caplog.records) == 2


async def test_wake_hints_are_a_budget() -> None:
    hub = InProcessHub()
    notify, other = InProcessNotify(hub), SyncNotify(InProcessNotify(hub))
    assert await notify.consume_wake_hint("t")
    assert await notify.consume_wake_hint("t")  # still nothing known

    await notify.provide_wake_hints({"t": 1, "u": 0})
    other.provide_wake_hints({"t": 1})
    assert [await notify.consume_wake_hint("t") for _ in range(4)] == [True, True, False, False]
    assert await notify.consume_wake_hint("u")
    other.provide_wake_hints({"t": 1})
    assert [await notify.consume_wake_hint("t") for _ in range(2)] == [True, False]


async def test_wake_hints_are_given_out_once_each() -> None:
    hub = InProcessHub()
    hub.provide({"t": 500})
    taken: list[bool] = []

    def take() -> None:
        taken.extend([hub.consume("t") for _ in range(200)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 500


async def test_a_sync_client_in_a_thread_wakes_an_async_worker() -> None:
    hub = InProcessHub()
    worker, client = InProcessNotify(hub), SyncNotify(InProcessNotify(hub))
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: str) -> None:
        loop.call_soon_threadsafe(woken.set)

    await worker.listen("job_scheduled", wake)
    await asyncio.to_thread(client.publish, "job_scheduled", ["t"])
    await asyncio.wait_for(woken.wait(), 45)

    ended: list[str] = []
    lost: list[str] = []
    dispose = client.listen("chain_ended", ended.append)
    await worker.listen("ownership_lost", lost.append)
    await worker.publish("chain_ended", ["c"])
    client.publish("chain_ended", ["d"])
    client.publish("ownership_lost", ["e"])
    dispose()
    await worker.publish("chain_ended", ["f"])
    assert (ended, lost) == (["c", "d"], ["e"])


async def test_closing_one_adapter_leaves_the_hub_to_the_others() -> None:
    hub = InProcessHub()
    closed, blocking, other = InProcessNotify(hub), SyncNotify(InProcessNotify(hub)), InProcessNotify(hub)
    mine: list[str] = []
    others: list[str] = []
    dispose = await closed.listen("chain_ended", mine.append)
    dispose_blocking = blocking.listen("chain_ended", mine.append)
    await other.listen("chain_ended", others.append)
    for _ in "ab":
        await closed.close()
        blocking.close()
    await other.publish("chain_ended", ["c"])
    await dispose()
    dispose_blocking()
    assert (mine, others) == ([], ["c"])


async def test_an_adapter_closed_while_it_begins_to_listen_keeps_no_listener() -> None:
    hub = InProcessHub()
    notify = SyncNotify(InProcessNotify(hub))
    add = hub.subscriptions.add

    def close_meanwhile(topic: Any, callback: Any) -> object:
        notify.close()
        return add(topic, callback)

    hub.subscriptions.add = close_meanwhile  # type: ignore[method-assign]
    heard: list[str] = []
    with pytest.raises(ClientClosed):
        notify.listen("chain_ended", heard.append)
    hub.publish("chain_ended", ["a"])
    assert heard == []


@pytest.mark.parametrize("adapter", [InProcessNotify, NoNotify])
async def test_after_close_everything_raises(adapter: type[InProcessNotify | NoNotify]) -> None:
    notify = adapter()
    await notify.close()
    for call in (
        notify.provide_wake_hints({"t": 1}),
        notify.consume_wake_hint("t"),
        notify.publish("job_scheduled", ["t"]),
        notify.publish("chain_ended", ["c"]),
        notify.publish("ownership_lost", ["j"]),
        notify.listen("job_scheduled", print),
        notify.listen("chain_ended", print),
        notify.listen("ownership_lost", print),
    ):
        with pytest.raises(ClientClosed, match="notify adapter"):
            await call
    await notify.close()


@pytest.mark.parametrize("adapter", [InProcessNotify, NoNotify])
def test_after_close_everything_raises_in_sync_clients(adapter: type[InProcessNotify | NoNotify]) -> None:
    notify = SyncNotify(adapter())
    notify.close()
    for call in (
        lambda: notify.provide_wake_hints({"t": 1}),
        lambda: notify.publish("job_scheduled", ["t"]),
        lambda: notify.publish("chain_ended", ["c"]),
        lambda: notify.publish("ownership_lost", ["j"]),
        lambda: notify.listen("chain_ended", print),
    ):
        with pytest.raises(ClientClosed, match="notify adapter"):
            call()
    notify.close()


async def test_no_notify_tells_nobody_and_lets_everybody_ask() -> None:
    notify, blocking = NoNotify(), SyncNotify(NoNotify())
    heard: list[str] = []
    disposes = [await notify.listen(topic, heard.append) for topic in TOPICS]
    dispose = blocking.listen("chain_ended", heard.append)
    await notify.provide_wake_hints({"t": 1})
    blocking.provide_wake_hints({"t": 1})
    for topic in TOPICS:
        await notify.publish(topic, ["t"])
        blocking.publish(topic, ["t"])
    assert [await notify.consume_wake_hint("t") for _ in range(3)] == [True] * 3
    for async_dispose in disposes:
        await async_dispose()
    dispose()
    assert heard == []


def test_sync_clients_need_no_thread() -> None:
    notify = SyncNotify(InProcessNotify())
    heard: list[str] = []
    notify.listen("chain_ended", heard.append)
    notify.publish("chain_ended", ["a"])
    assert heard == ["a"]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("queuert")]
    notify.close()


def test_an_adapter_that_is_not_immediate_after_all_is_told_so() -> None:
    class Waits(InProcessNotify):
        async def publish(self, topic: Any, values: Any) -> None:
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="immediate"):
        SyncNotify(Waits()).publish("chain_ended", ["a"])
