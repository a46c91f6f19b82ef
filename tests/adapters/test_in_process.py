"""Notifications inside one process, and the adapters that send none."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest

from queuert.adapters.in_process import (
    InProcessHub,
    InProcessNotify,
    NoNotify,
    SyncInProcessNotify,
    SyncNoNotify,
)
from queuert.errors import ClientClosed


async def test_each_topic_reaches_its_own_listeners_in_order() -> None:
    notify = InProcessNotify()
    jobs: list[str] = []
    chains: list[str] = []
    lost: list[str] = []
    await notify.listen_job_scheduled(jobs.append)
    await notify.listen_job_scheduled(jobs.append)
    await notify.listen_chain_completed(chains.append)
    await notify.listen_ownership_lost(lost.append)
    await notify.job_scheduled(["a", "b"])
    await notify.chain_completed(["c"])
    await notify.ownership_lost(["d"])
    assert (jobs, chains, lost) == (["a", "a", "b", "b"], ["c"], ["d"])


async def test_disposed_listeners_hear_nothing_more() -> None:
    notify = InProcessNotify()
    heard: list[str] = []
    first = await notify.listen_chain_completed(heard.append)
    await notify.listen_chain_completed(heard.append)
    await first()
    await first()
    await notify.chain_completed(["a"])
    assert heard == ["a"]


async def test_a_listener_may_end_another_while_it_is_called() -> None:
    hub = InProcessHub()
    notify = SyncInProcessNotify(hub)
    heard: list[str] = []
    notify.listen_chain_completed(lambda _: dispose())
    dispose = notify.listen_chain_completed(heard.append)
    notify.chain_completed(["a", "b"])
    assert heard == []


async def test_a_listener_that_raises_is_logged_and_keeps_nobody_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notify = InProcessNotify()
    heard: list[str] = []

    def broken(value: str) -> None:
        raise ZeroDivisionError

    await notify.listen_job_scheduled(broken)
    await notify.listen_job_scheduled(heard.append)
    with caplog.at_level(logging.ERROR, logger="queuert.notify"):
        await notify.job_scheduled(["a", "b"])
    assert heard == ["a", "b"]
    assert len(caplog.records) == 2


async def test_wake_hints_are_a_budget() -> None:
    hub = InProcessHub()
    notify, other = InProcessNotify(hub), SyncInProcessNotify(hub)
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
    worker, client = InProcessNotify(hub), SyncInProcessNotify(hub)
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: str) -> None:
        loop.call_soon_threadsafe(woken.set)

    await worker.listen_job_scheduled(wake)
    await asyncio.to_thread(client.job_scheduled, ["t"])
    await asyncio.wait_for(woken.wait(), 5)

    ended: list[str] = []
    lost: list[str] = []
    dispose = client.listen_chain_completed(ended.append)
    await worker.listen_ownership_lost(lost.append)
    await worker.chain_completed(["c"])
    client.chain_completed(["d"])
    client.ownership_lost(["e"])
    dispose()
    await worker.chain_completed(["f"])
    assert (ended, lost) == (["c", "d"], ["e"])


async def test_closing_one_adapter_leaves_the_hub_to_the_others() -> None:
    hub = InProcessHub()
    closed, blocking, other = InProcessNotify(hub), SyncInProcessNotify(hub), InProcessNotify(hub)
    mine: list[str] = []
    others: list[str] = []
    dispose = await closed.listen_chain_completed(mine.append)
    dispose_blocking = blocking.listen_chain_completed(mine.append)
    await other.listen_chain_completed(others.append)
    for _ in "ab":
        await closed.close()
        blocking.close()
    await other.chain_completed(["c"])
    await dispose()
    dispose_blocking()
    assert (mine, others) == ([], ["c"])


async def test_an_adapter_closed_while_it_begins_to_listen_keeps_no_listener() -> None:
    hub = InProcessHub()
    notify = SyncInProcessNotify(hub)
    add = hub.subscriptions.add

    def close_meanwhile(topic: Any, callback: Any) -> object:
        notify.close()
        return add(topic, callback)

    hub.subscriptions.add = close_meanwhile  # type: ignore[method-assign]
    heard: list[str] = []
    with pytest.raises(ClientClosed):
        notify.listen_chain_completed(heard.append)
    hub.publish("chain_completed", ["a"])
    assert heard == []


@pytest.mark.parametrize("adapter", [InProcessNotify, NoNotify])
async def test_after_close_everything_raises(adapter: type[InProcessNotify | NoNotify]) -> None:
    notify = adapter()
    await notify.close()
    for call in (
        notify.provide_wake_hints({"t": 1}),
        notify.consume_wake_hint("t"),
        notify.job_scheduled(["t"]),
        notify.chain_completed(["c"]),
        notify.ownership_lost(["j"]),
        notify.listen_job_scheduled(print),
        notify.listen_chain_completed(print),
        notify.listen_ownership_lost(print),
    ):
        with pytest.raises(ClientClosed, match="notify adapter"):
            await call
    await notify.close()


@pytest.mark.parametrize("adapter", [SyncInProcessNotify, SyncNoNotify])
def test_after_close_everything_raises_in_sync_adapters(adapter: type[SyncInProcessNotify | SyncNoNotify]) -> None:
    notify = adapter()
    notify.close()
    for call in (
        lambda: notify.provide_wake_hints({"t": 1}),
        lambda: notify.job_scheduled(["t"]),
        lambda: notify.chain_completed(["c"]),
        lambda: notify.ownership_lost(["j"]),
        lambda: notify.listen_chain_completed(print),
    ):
        with pytest.raises(ClientClosed, match="notify adapter"):
            call()
    notify.close()


async def test_no_notify_tells_nobody_and_lets_everybody_ask() -> None:
    notify, blocking = NoNotify(), SyncNoNotify()
    heard: list[str] = []
    disposes = [
        await notify.listen_job_scheduled(heard.append),
        await notify.listen_chain_completed(heard.append),
        await notify.listen_ownership_lost(heard.append),
    ]
    dispose = blocking.listen_chain_completed(heard.append)
    for each in (notify, blocking):
        await _settled(each.provide_wake_hints({"t": 1}))
        await _settled(each.job_scheduled(["t"]))
        await _settled(each.chain_completed(["c"]))
        await _settled(each.ownership_lost(["j"]))
    assert [await notify.consume_wake_hint("t") for _ in range(3)] == [True] * 3
    for async_dispose in disposes:
        await async_dispose()
    dispose()
    assert heard == []


async def _settled(result: object) -> None:
    if asyncio.iscoroutine(result):
        await result
