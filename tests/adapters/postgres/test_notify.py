"""LISTEN and NOTIFY on an event loop, with each driver: what is sent, and who hears it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.ears import ASYNC, LISTENER, listener_tasks, silence
from tests.support.ears import Ear

from queuert.adapters.broadcast.messages import pack
from queuert.adapters.broadcast.provider import MAX_PAYLOAD
from queuert.adapters.postgres.adapter import psycopg_notify
from queuert.adapters.postgres.notify.channels import check_prefix, default_prefix
from queuert.errors import ClientClosed, InvalidArgument, StorageUnavailable

Make = Callable[..., Any]


@pytest.fixture(params=ASYNC)
def make(request: pytest.FixtureRequest) -> Make:
    return ASYNC[request.param]


@pytest.fixture
async def notify(make: Make, database_url: str) -> AsyncIterator[Any]:
    adapter = make(database_url)
    yield adapter
    await adapter.close()
    assert not listener_tasks()


def storage_of(notify: Any) -> Any:
    return notify._current.provider._provider._storage


async def test_ten_thousand_ids_are_one_statement(notify: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ear, calls = Ear(), 0
    await notify.listen("chain_ended", ear)
    provider = storage_of(notify)
    execute = provider.execute_within

    async def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await execute(*args)

    monkeypatch.setattr(provider, "execute_within", counted)
    ids = [f"{number:036}" for number in range(10_000)]
    await notify.publish("chain_ended", ids)
    await ear.until_so(lambda: len(ear.heard) == len(ids))
    assert ear.heard == ids
    assert calls == 1


async def test_ten_thousand_listeners_share_one_connection(notify: Any, watch: Watcher) -> None:
    heard: dict[int, str] = {}
    ear = Ear()
    disposals = [
        await notify.listen("chain_ended", lambda value, number=number: heard.__setitem__(number, value))
        for number in range(10_000)
    ]
    await notify.listen("chain_ended", ear)
    assert len(watch.others(LISTENER)) == 1
    await notify.publish("chain_ended", ["all"])
    await ear.until("all")
    assert len(heard) == 10_000
    heard.clear()
    for dispose in disposals[:5000]:
        await dispose()
    await notify.publish("chain_ended", ["half"])
    await ear.until("half")
    assert sorted(heard) == list(range(5000, 10_000))


async def test_the_connection_goes_with_the_last_listener(notify: Any, watch: Watcher) -> None:
    assert watch.others(LISTENER) == []
    first = await notify.listen("job_scheduled", Ear())
    second = await notify.listen("ownership_lost", Ear())
    assert len(watch.others(LISTENER)) == 1
    await first()
    assert len(listener_tasks()) == 1
    await second()
    assert not listener_tasks()
    async with asyncio.timeout(45):
        while watch.others(LISTENER):
            await asyncio.sleep(0.005)


async def test_messages_that_are_not_ours_are_ignored(
    notify: Any, watch: Watcher, caplog: pytest.LogCaptureFixture
) -> None:
    ear = Ear()
    await notify.listen("chain_ended", ear)
    for payload in ("", "nonsense", "{}", '"text"', "[1]", '[["a"]]', '[""]', "[null]", "[" * 2000):
        watch("SELECT pg_notify('public.queuert_chain_completed', %s)", payload)
    watch("NOTIFY chain_completed, '[\"elsewhere\"]'")
    await notify.publish("chain_ended", ["ours"])
    await ear.until("ours")
    assert ear.heard == ["ours"]
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "public.queuert_chain_completed" in warnings[0].getMessage()


async def test_a_callback_that_fails_does_not_keep_others_from_hearing(notify: Any) -> None:
    ear = Ear()

    def fail(value: str) -> None:
        raise RuntimeError(value)

    await notify.listen("job_scheduled", fail)
    await notify.listen("job_scheduled", ear)
    await notify.publish("job_scheduled", ["a", "b"])
    await ear.until("b")
    assert ear.heard == ["a", "b"]


async def test_installations_do_not_hear_each_other(make: Make, database_url: str) -> None:
    others = [
        {"schema": "other"},
        {"table_prefix": "other_"},
        {"channel_prefix": 'x"; NOTIFY y; --'},
        {"schema": "é" * 31, "table_prefix": "a" * 20},
        {"schema": "é" * 31, "table_prefix": "a" * 21},
    ]
    adapters = [make(database_url), *(make(database_url, **options) for options in others)]
    ears = [Ear() for _ in adapters]
    for adapter, ear in zip(adapters, ears, strict=True):
        await adapter.listen("chain_ended", ear)
    for number, adapter in enumerate(adapters):
        await adapter.publish("chain_ended", [f"message {number}"])
    for number, ear in enumerate(ears):
        await ear.until(f"message {number}")
    for adapter, ear in zip(adapters, ears, strict=True):  # in order: what was sent before would be here by now
        await adapter.publish("chain_ended", ["last"])
        await ear.until("last")
    assert [ear.heard for ear in ears] == [[f"message {number}", "last"] for number in range(len(ears))]
    for adapter in adapters:
        await adapter.close()


def test_names_of_channels_fit() -> None:
    for schema, prefix in (("public", "queuert_"), ("s" * 63, "p" * 63), ("é" * 31, "_")):
        adapter = psycopg_notify("postgresql://host", schema=schema, table_prefix=prefix)
        assert all(len(name.encode()) <= 63 for name in adapter.channels.values())
    assert default_prefix("public", "queuert_") == "public.queuert_"
    for bad in ("", "x" * 50, "a\0b"):
        with pytest.raises(InvalidArgument, match="channel_prefix"):
            check_prefix(bad)


def test_payloads_are_filled_and_not_overfilled() -> None:
    assert pack([], 10) == []
    assert pack(["a", 'b"\\'], 100) == ['["a","b\\"\\\\"]']
    payloads = pack(["東" * 200] * 100, MAX_PAYLOAD)
    assert all(len(payload.encode()) <= MAX_PAYLOAD for payload in payloads)
    assert len(payloads) == 9


async def test_listening_needs_a_url(make: Make, database_url: str) -> None:
    owner = make(database_url)
    await owner.publish("job_scheduled", ["a"])
    provider = storage_of(owner)
    with pytest.raises(InvalidArgument, match="listen_url"):
        make(provider)
    adapter = make(provider, listen_url=database_url)
    ear = Ear()
    await adapter.listen("job_scheduled", ear)
    await adapter.publish("job_scheduled", ["a"])
    await ear.until("a")
    await adapter.close()
    # The provider was given, so it is not the adapter's to close.
    async with provider.transaction():
        pass
    await owner.close()


# Closing, cancelling


async def test_close_during_a_subscription(make: Make, database_url: str) -> None:
    async with silence() as server:
        adapter = make(database_url, listen_url=server.url)
        subscribing = [asyncio.create_task(adapter.listen("job_scheduled", Ear())) for _ in range(3)]
        await server.opened.wait()
        await asyncio.gather(adapter.close(), adapter.close())
        assert not listener_tasks()
        for result in await asyncio.gather(*subscribing, return_exceptions=True):
            assert isinstance(result, ClientClosed)
        await asyncio.wait_for(server.closed.wait(), 45)
        with pytest.raises(ClientClosed):
            await adapter.listen("job_scheduled", Ear())


async def test_a_cancelled_subscription_leaves_nothing_behind(make: Make, database_url: str) -> None:
    async with silence() as server:
        adapter = make(database_url, listen_url=server.url)
        subscribing = asyncio.create_task(adapter.listen("job_scheduled", Ear()))
        await server.opened.wait()
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        await asyncio.wait_for(server.closed.wait(), 45)
        assert not adapter._current.subscriptions
        await adapter.close()
        assert not listener_tasks()


async def test_a_cancelled_subscriber_does_not_disturb_others(make: Make, database_url: str) -> None:
    adapter = make(database_url)
    ear = Ear()
    cancelled = asyncio.create_task(adapter.listen("job_scheduled", Ear()))
    kept = asyncio.create_task(adapter.listen("job_scheduled", ear))
    await asyncio.sleep(0)
    cancelled.cancel()
    await kept
    assert cancelled.cancelled()
    await adapter.publish("job_scheduled", ["a"])
    await ear.until("a")
    await adapter.close()
    assert not listener_tasks()


async def test_cancelled_at_any_moment(make: Make, database_url: str, watch: Watcher) -> None:
    adapter = make(database_url)
    for steps in range(40):
        subscribing = asyncio.create_task(adapter.listen("job_scheduled", Ear()))
        for _ in range(steps):
            await asyncio.sleep(0)
        subscribing.cancel()
        try:
            dispose = await subscribing
        except asyncio.CancelledError:
            continue
        await dispose()
    await adapter.close()
    assert not listener_tasks()
    await watch.until_gone()


async def test_a_channel_that_cannot_be_reached(make: Make, database_url: str) -> None:
    adapter = make(database_url, listen_url="postgresql://postgres@127.0.0.1:1/postgres")
    for _ in range(2):
        with pytest.raises(StorageUnavailable):
            await adapter.listen("job_scheduled", Ear())
        await adapter._current.listener.stopped()
        assert not listener_tasks()
    await adapter.publish("job_scheduled", ["a"])  # publishing goes another way
    await adapter.close()


def test_a_url_that_cannot_be_understood(database_url: str) -> None:
    with pytest.raises(InvalidArgument, match="no_such_option"):
        psycopg_notify(database_url, listen_url="postgresql://host?no_such_option=1")
