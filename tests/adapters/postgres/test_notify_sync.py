"""LISTEN and NOTIFY for the sync client: its event loop runs in a thread."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import monotonic
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.ears import LISTENER, kill_listener
from tests.support.ears import ThreadEar
from tests.support.jobs import Greet
from tests.support.postgres import PostgresServer

import queuert
from queuert import ClientClosed, InvalidArgument, NotifyUnavailable, StorageUnavailable
from queuert.adapters.broadcast import listener
from queuert.adapters.postgres.adapter import psycopg_notify
from queuert.adapters.postgres.drivers.psycopg import PsycopgSyncProvider
from queuert.engine import publishing
from queuert.ports.notify import MISSED
from queuert.ports.sync_notify import SyncNotify


def listening_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "queuert-notify"]


def sync_notify(url: str, **options: Any) -> Any:
    return SyncNotify(psycopg_notify(url, **options))


@pytest.fixture(params=["own connections", "a sync provider"])
def notify(request: pytest.FixtureRequest, database_url: str) -> Iterator[Any]:
    if request.param == "own connections":
        adapter, provider = sync_notify(database_url), None
    else:
        provider = PsycopgSyncProvider(database_url)
        adapter = SyncNotify(psycopg_notify(provider, listen_url=database_url))
    yield adapter
    adapter.close()
    assert not listening_threads()
    if provider is not None:
        provider.close()


def test_a_lost_listener_comes_back(notify: Any, watch: Watcher) -> None:
    ear = ThreadEar()
    notify.listen("chain_ended", ear)
    kill_listener(watch)
    ear.until(MISSED)
    notify.publish("chain_ended", ["again"])
    ear.until("again")
    assert len(watch.others(LISTENER)) == 1


def test_a_server_that_is_restarted(own_server: PostgresServer) -> None:
    adapter, ear, late = sync_notify(own_server.url), ThreadEar(), ThreadEar()
    adapter.listen("chain_ended", ear)
    own_server.stop(immediate=True)
    # The thread learns of it in its own time; until then it takes subscriptions, and tells them later.
    deadline = monotonic() + 45
    with pytest.raises(StorageUnavailable):
        while monotonic() < deadline:
            adapter.listen("chain_ended", late)()
    own_server.start()
    adapter.listen("chain_ended", late)
    ear.until(MISSED)
    adapter.publish("chain_ended", ["up"])
    ear.until("up")
    late.until("up")
    own_server.stop(immediate=True)
    adapter.close()
    assert not listening_threads()


def test_a_server_that_keeps_silent_is_left(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "PING_TIMEOUT", 0.2)
    adapter, ear = sync_notify(own_server.url), ThreadEar()
    adapter.adapter.heartbeat = 0.05
    adapter.listen("chain_ended", ear)
    watch = Watcher(own_server.url)
    (pid,) = watch.others(LISTENER)
    os.kill(pid, signal.SIGSTOP)
    try:
        ear.until(MISSED)
        adapter.publish("chain_ended", ["a"])
        ear.until("a")
        adapter.close()
    finally:
        os.kill(pid, signal.SIGCONT)
        watch.close()


def test_a_sign_of_life_disturbs_nothing(notify: Any, watch: Watcher) -> None:
    ear = ThreadEar()
    notify.adapter.heartbeat = 0.001
    notify.listen("chain_ended", ear)
    (pid,) = watch.others(LISTENER)
    for number in range(200):
        notify.publish("chain_ended", [str(number)])
    ear.until("199")
    assert ear.heard == [str(number) for number in range(200)]
    assert watch.others(LISTENER) == [pid]


def test_many_threads_subscribe_and_leave(notify: Any, watch: Watcher) -> None:
    def come_and_go(number: int) -> None:
        ear = ThreadEar()
        dispose = notify.listen("chain_ended", ear)
        notify.publish("chain_ended", [f"from {number}"])
        ear.until(f"from {number}")
        dispose()
        dispose()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(come_and_go, range(40)))
    deadline = monotonic() + 45
    while watch.others(LISTENER):  # the connection goes with the last listener
        assert monotonic() < deadline


def test_a_callback_may_dispose_of_itself_and_close_the_adapter(notify: Any) -> None:
    ear = ThreadEar()
    gone = threading.Event()

    def once(value: str) -> None:
        dispose()
        notify.close()
        gone.set()

    dispose = notify.listen("chain_ended", once)
    with suppress(ClientClosed):  # the callback may close the adapter before this call has returned
        notify.publish("chain_ended", ["a"])
    assert gone.wait(45)
    with pytest.raises(ClientClosed):
        notify.listen("chain_ended", ear)
    for thread in listening_threads():
        thread.join(10)


def test_close_during_a_subscription(database_url: str) -> None:
    """Close interrupts a connection attempt."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        url = f"postgresql://postgres@127.0.0.1:{server.getsockname()[1]}/postgres?sslmode=disable&connect_timeout=2"
        adapter = sync_notify(database_url, listen_url=url)
        subscribing = threads.submit(adapter.listen, "chain_ended", ThreadEar())
        connection, _ = server.accept()
        adapter.close()
        assert not listening_threads()
        with pytest.raises((ClientClosed, StorageUnavailable)):
            subscribing.result(45)
        connection.close()


def test_a_channel_that_cannot_be_reached(database_url: str) -> None:
    adapter = sync_notify(database_url, listen_url="postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(StorageUnavailable):
        adapter.listen("chain_ended", ThreadEar())
    adapter.publish("job_scheduled", ["a"])  # publishing goes another way
    adapter.close()
    assert not listening_threads()


def test_listening_needs_a_url(database_url: str) -> None:
    with pytest.raises(InvalidArgument, match="listen_url"):
        psycopg_notify(PsycopgSyncProvider(database_url))


def test_a_wait_ends_with_the_message(database_url: str) -> None:
    options: Any = {"jobs": [Greet], "poll_interval": 3600}
    with queuert.connect_sync(database_url, **options) as client, ThreadPoolExecutor(1) as threads:
        with client.transaction() as tx:
            chain = client.start(tx, Greet())
        waiting: Future[Any] = threads.submit(client.wait, chain, timeout=30)
        while not client._waiting._dispose:
            threading.Event().wait(0.005)
        with client.transaction() as tx, client.take_over(tx, chain) as current:
            current.settle("hello")
        assert waiting.result(45) == "hello"
        assert client.hook_failures == 0
    assert not listening_threads()


def test_a_sync_client_opens_no_connections_beside_its_pool_but_the_listener(database_url: str, watch: Watcher) -> None:
    everything = "application_name NOT LIKE 'queuert watcher%'"
    with queuert.connect_sync(database_url, jobs=[Greet], pool_size=2) as client, ThreadPoolExecutor(8) as threads:

        def start(_: int) -> None:
            with client.transaction() as tx:
                client.start(tx, Greet())

        client.sessions.channel.listen("chain_ended", lambda _: None)
        list(threads.map(start, range(40)))
        assert client.hook_failures == 0
        assert len(watch.others(everything)) <= 3


def test_a_server_that_hangs_holds_up_no_commit_for_long(own_server: PostgresServer) -> None:
    """Publishing through the pool is given up after a while, and the thread of the call is left to itself."""
    provider = PsycopgSyncProvider(own_server.url, max_size=1)
    notify = SyncNotify(publishing.BoundedNotify(psycopg_notify(provider, listen_url=own_server.url)))
    notify.publish("job_scheduled", ["a"])
    watch = Watcher(own_server.url)
    (pid,) = watch.others("query LIKE '%%pg_notify%%'")
    os.kill(pid, signal.SIGSTOP)
    try:
        for _ in range(3):
            with pytest.raises(NotifyUnavailable):
                notify.publish("job_scheduled", ["a"])
    finally:
        os.kill(pid, signal.SIGCONT)
        watch.close()
    notify.close()
    provider.close()
