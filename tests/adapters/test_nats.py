"""What is particular to NATS. Faults that all brokers share are in tests/brokers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from uuid import uuid4

import nats
import pytest
from nats.js.api import StorageType
from tests.support.nats import NatsServer, nats_url

import queuert
from queuert import ClientClosed, EntryJob, InvalidArgument, NotifyUnavailable
from queuert.adapters.nats import nats_notify
from queuert.adapters.nats.names import hint_key
from queuert.ports.notify import MISSED
from queuert.ports.sync_notify import SyncNotify

PATIENCE = 45.0


class Ear:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def __call__(self, value: str) -> None:
        self.heard.append(value)

    async def hears(self, value: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while value not in self.heard:
                await asyncio.sleep(0.005)


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "queuert-notify"]


@pytest.fixture
def prefix() -> str:
    return f"test.{uuid4()}"


@pytest.fixture
def server() -> Iterator[NatsServer]:
    """One that this test may stop and restart."""
    found = NatsServer()
    try:
        yield found
    finally:
        found.remove()


@pytest.fixture
async def connection() -> AsyncIterator[Any]:
    """The user's own."""
    found = await nats.connect(nats_url())
    yield found
    await found.close()


# Names

ODD = ["a.b", "a b", "a*", "a>", ">", "*", "", "=2E", "naïve", "日本", "a\nb", "x" * 200, "ü" * 200, "$KV", "a/b", "."]


def test_each_type_has_a_key_of_its_own() -> None:
    keys = [hint_key("p", name) for name in ODD]
    assert len(set(keys)) == len(ODD)
    for key in keys:
        assert key.count(".") == 1
        assert set(key) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-=.")


async def test_budgets_of_types_with_odd_names(prefix: str) -> None:
    adapter = nats_notify(nats_url(), prefix=prefix, bucket="odd")
    names = [name for name in ODD if name]
    await adapter.provide_wake_hints(dict.fromkeys(names, 1))
    for name in names:
        assert [await adapter.consume_wake_hint(name) for _ in range(2)] == [True, False], name
    await adapter.close()


async def test_odd_names_are_heard_as_they_are(prefix: str) -> None:
    adapter, ear = nats_notify(nats_url(), prefix=prefix), Ear()
    await adapter.listen("job_scheduled", ear)
    names = [name for name in ODD if name]
    await adapter.publish("job_scheduled", names)
    await ear.hears(names[-1])
    assert ear.heard == names
    await adapter.close()


@pytest.mark.parametrize("bad", ["", ".", "a.", ".a", "a..b", "a b", "a*", "a.>", "ü"])
def test_prefixes_that_are_no_subject(bad: str) -> None:
    with pytest.raises(InvalidArgument, match="prefix"):
        nats_notify("nats://host", prefix=bad)


@pytest.mark.parametrize("bad", ["", "a.b", "a b", "*"])
def test_buckets_that_have_no_name(bad: str) -> None:
    with pytest.raises(InvalidArgument, match="bucket"):
        nats_notify("nats://host", bucket=bad)


@pytest.mark.parametrize("bad", ["nats://", "nats://me:secret@host:port", "http://secret", "nats://a,secret", ""])
def test_urls_that_are_none(bad: str) -> None:
    with pytest.raises(InvalidArgument, match="nats://user") as caught:
        nats_notify(bad)
    assert "secret" not in str(caught.value)


# Connections


async def test_the_users_connection_stays_open_and_keeps_only_his_subscriptions(connection: Any, prefix: str) -> None:
    adapter, ear = nats_notify(connection, prefix=prefix, bucket="own"), Ear()
    await adapter.listen("job_scheduled", ear)
    await adapter.provide_wake_hints({"a": 1})
    await adapter.publish("job_scheduled", ["a"])
    await ear.hears("a")
    await adapter.close()
    assert connection.is_connected
    left = [each.subject for each in connection._subs.values()]
    assert not [subject for subject in left if subject.startswith(prefix)]


async def test_the_users_connection_that_is_lost_and_comes_back(server: NatsServer) -> None:
    options: Any = {"reconnect_time_wait": 0.05, "max_reconnect_attempts": -1, "error_cb": _quiet}
    connection = await nats.connect(server.url, **options)
    adapter, ear = nats_notify(connection), Ear()
    await adapter.listen("chain_ended", ear)
    server.stop()
    server.start()
    await ear.hears(MISSED)
    await adapter.publish("chain_ended", ["again"])
    await ear.hears("again")
    await adapter.close()
    assert connection.is_connected
    await connection.close()


async def test_the_users_connection_that_is_closed(prefix: str) -> None:
    connection = await nats.connect(nats_url())
    adapter = nats_notify(connection, prefix=prefix, bucket="own")
    dispose = await adapter.listen("chain_ended", Ear())
    await connection.close()
    with pytest.raises(NotifyUnavailable):
        await adapter.publish("chain_ended", ["a"])
    with pytest.raises(NotifyUnavailable):
        await adapter.consume_wake_hint("a")
    await dispose()
    await adapter.close()


async def test_a_server_that_was_away_at_first(server: NatsServer) -> None:
    server.stop()
    adapter = nats_notify(server.url)
    for _ in range(2):
        with pytest.raises(NotifyUnavailable):
            await adapter.publish("job_scheduled", ["a"])
    server.start()
    ear = Ear()
    await adapter.listen("job_scheduled", ear)
    await adapter.publish("job_scheduled", ["a"])
    await ear.hears("a")
    await adapter.close()


async def test_one_of_several_servers_is_enough(prefix: str) -> None:
    away = NatsServer()
    away.stop()
    adapter = nats_notify(f"{away.url},{nats_url()}", prefix=prefix)
    for _ in range(3):
        await adapter.publish("job_scheduled", ["a"])
    await adapter.close()
    away.remove()


async def test_closing_while_it_connects(server: NatsServer) -> None:
    adapter = nats_notify(server.url)
    listening = asyncio.create_task(adapter.listen("job_scheduled", Ear()))
    await asyncio.sleep(0)
    assert adapter._current is not None
    provider: Any = adapter._current.provider._provider
    await adapter.close()
    with pytest.raises(ClientClosed):
        await listening
    assert provider._connection._client is None


# Buckets


async def test_a_bucket_is_made_for_a_minute_in_memory(server: NatsServer, prefix: str) -> None:
    adapter = nats_notify(server.url, prefix=prefix, bucket="made")
    await adapter.provide_wake_hints({"a": 1})
    client = await nats.connect(server.url)
    info = await client.jetstream().stream_info("KV_made")
    assert (info.config.max_age, info.config.max_msgs_per_subject) == (60, 1)
    assert info.config.storage == StorageType.MEMORY
    await client.close()
    await adapter.close()


async def test_a_bucket_of_the_users_is_taken_as_it_is(server: NatsServer) -> None:
    client = await nats.connect(server.url)
    bucket = await client.jetstream().create_key_value(bucket="mine", history=5, direct=True)
    adapter = nats_notify(server.url, bucket="mine")
    await adapter.provide_wake_hints({"a": 2})
    assert [await adapter.consume_wake_hint("a") for _ in range(3)] == [True, True, False]
    assert (await bucket.get("queuert.a")).value == b"0"
    await adapter.close()
    await client.close()


async def test_what_is_no_number_is_no_budget(server: NatsServer) -> None:
    client = await nats.connect(server.url)
    adapter = nats_notify(server.url, bucket="odd")
    await adapter.provide_wake_hints({"a": 1})
    bucket = await client.jetstream().key_value("odd")
    for value in (b"many", b"", b"\xff"):
        await bucket.put("queuert.a", value)
        assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, True]
        await adapter.provide_wake_hints({"a": 1})
        assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, False]
    await bucket.delete("queuert.a")
    assert await adapter.consume_wake_hint("a")
    await adapter.provide_wake_hints({"a": 1})
    assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, False]
    await adapter.close()
    await client.close()


async def test_a_bucket_that_is_gone_is_made_again(server: NatsServer) -> None:
    """After a restart, for what was in memory; or because somebody has deleted it."""
    client = await nats.connect(server.url)
    adapter = nats_notify(server.url, bucket="here")
    for _ in range(2):
        await adapter.provide_wake_hints({"a": 1, "b": 2})
        assert [await adapter.consume_wake_hint("a") for _ in range(2)] == [True, False]
        await client.jetstream().delete_key_value("here")
        assert await adapter.consume_wake_hint("a")
    await adapter.close()
    await client.close()


async def test_a_server_without_jetstream(prefix: str) -> None:
    plain = NatsServer(jetstream=False)
    adapter = nats_notify(plain.url, prefix=prefix, bucket="none")
    with pytest.raises(NotifyUnavailable):
        await adapter.provide_wake_hints({"a": 1})
    with pytest.raises(NotifyUnavailable):
        await adapter.consume_wake_hint("a")
    await adapter.close()
    without = nats_notify(plain.url, prefix=prefix)
    await without.provide_wake_hints({"a": 1})
    assert [await without.consume_wake_hint("a") for _ in range(3)] == [True] * 3
    await without.close()
    plain.remove()


# The thread of sync clients


def test_sync_clients_share_one_thread(prefix: str) -> None:
    one, two = (SyncNotify(nats_notify(nats_url(), prefix=prefix, bucket="sync")) for _ in range(2))
    assert not loop_threads(), "nothing was done yet"
    one.publish("job_scheduled", ["a"])
    two.provide_wake_hints({"a": 1})
    assert len(loop_threads()) == 1
    one.close()
    two.publish("job_scheduled", ["b"])
    assert len(loop_threads()) == 1
    two.close()
    assert not loop_threads()
    with pytest.raises(ClientClosed):
        one.publish("job_scheduled", ["c"])
    one.close()


def test_a_callback_may_end_its_own_subscription_and_more(prefix: str) -> None:
    """It is called in the loop's thread, which cannot wait for itself."""
    adapter = SyncNotify(nats_notify(nats_url(), prefix=prefix))
    first, second = threading.Event(), threading.Event()
    disposals: list[Any] = []

    def dispose(value: str) -> None:
        disposals[0]()
        first.set()

    def close(value: str) -> None:
        adapter.close()
        second.set()

    disposals.append(adapter.listen("chain_ended", dispose))
    adapter.publish("chain_ended", ["a"])
    assert first.wait(PATIENCE)
    adapter.listen("chain_ended", close)
    adapter.publish("chain_ended", ["b"])
    assert second.wait(PATIENCE)
    for thread in loop_threads():
        thread.join(PATIENCE)
    assert not loop_threads()
    disposals[0]()


class Greet(EntryJob[str], name="greet"):
    who: str


async def test_connect_hands_the_settings_on(connection: Any, prefix: str) -> None:
    options: Any = {"jobs": [Greet], "notify": nats_url(), "notify_prefix": prefix, "notify_bucket": "connected"}
    options["announce"] = "wait"  # the bucket is looked at right after the commit
    async with queuert.connect("memory://", **options) as client:
        async with client.transaction() as tx:
            await client.start(tx, Greet(who="you"))
        bucket = await connection.jetstream().key_value("connected")
        assert (await bucket.get(f"{prefix}.greet")).value == b"1"
    with queuert.connect_sync("memory://", **options) as sync_client:
        with sync_client.transaction() as sync_tx:
            sync_client.start(sync_tx, Greet(who="you"))
        assert (await bucket.get(f"{prefix}.greet")).value == b"2"
    for notify in (None, "redis://host"):
        with pytest.raises(InvalidArgument, match="notify_bucket"):
            queuert.connect("memory://", jobs=[Greet], notify=notify, notify_bucket="b")


async def _quiet(error: Exception) -> None:
    pass
