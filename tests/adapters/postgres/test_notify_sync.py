"""LISTEN and NOTIFY for the sync client: a thread listens."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.ears import LISTENER, kill_listener
from tests.support.ears import ThreadEar
from tests.support.jobs import Greet
from tests.support.postgres import PostgresServer

import queuert
from queuert import ClientClosed, InvalidArgument, StorageUnavailable
from queuert.adapters.broadcast import listener_thread
from queuert.adapters.postgres.adapter import sync_psycopg_notify
from queuert.ports.notify import MISSED


def listening_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "queuert-listener"]


@pytest.fixture
def notify(database_url: str) -> Iterator[Any]:
    adapter = sync_psycopg_notify(database_url)
    yield adapter
    adapter.close()
    assert not listening_threads()


def test_a_lost_listener_comes_back(notify: Any, watch: Watcher) -> None:
    ear = ThreadEar()
    notify.listen_chain_completed(ear)
    kill_listener(watch)
    ear.until(MISSED)
    notify.chain_completed(["again"])
    ear.until("again")
    assert len(watch.others(LISTENER)) == 1


def test_a_server_that_is_restarted(own_server: PostgresServer) -> None:
    adapter, ear, late = sync_psycopg_notify(own_server.url), ThreadEar(), ThreadEar()
    adapter.listen_chain_completed(ear)
    own_server.stop(immediate=True)
    # The thread learns of it in its own time; until then it takes subscriptions, and tells them later.
    with pytest.raises(StorageUnavailable):
        for _ in range(10_000):
            adapter.listen_chain_completed(late)()
    own_server.start()
    adapter.listen_chain_completed(late)
    ear.until(MISSED)
    adapter.chain_completed(["up"])
    ear.until("up")
    late.until("up")
    own_server.stop(immediate=True)
    adapter.close()
    assert not listening_threads()


def test_a_server_that_keeps_silent_is_left(own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_thread, "PING_TIMEOUT", 0.2)
    adapter, ear = sync_psycopg_notify(own_server.url), ThreadEar()
    adapter._heartbeat = 0.05
    adapter.listen_chain_completed(ear)
    watch = Watcher(own_server.url)
    (pid,) = watch.others(LISTENER)
    os.kill(pid, signal.SIGSTOP)
    try:
        ear.until(MISSED)
        adapter.chain_completed(["a"])
        ear.until("a")
        adapter.close()
    finally:
        os.kill(pid, signal.SIGCONT)
        watch.close()


def test_a_sign_of_life_disturbs_nothing(notify: Any, watch: Watcher) -> None:
    ear = ThreadEar()
    notify._heartbeat = 0.001
    notify.listen_chain_completed(ear)
    (pid,) = watch.others(LISTENER)
    for number in range(200):
        notify.chain_completed([str(number)])
    ear.until("199")
    assert ear.heard == [str(number) for number in range(200)]
    assert watch.others(LISTENER) == [pid]


def test_many_threads_subscribe_and_leave(notify: Any, watch: Watcher) -> None:
    def come_and_go(number: int) -> None:
        ear = ThreadEar()
        dispose = notify.listen_chain_completed(ear)
        notify.chain_completed([f"from {number}"])
        ear.until(f"from {number}")
        dispose()
        dispose()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(come_and_go, range(40)))
    assert not listening_threads()


def test_a_callback_may_dispose_of_itself_and_close_the_adapter(notify: Any) -> None:
    ear = ThreadEar()
    gone = threading.Event()

    def once(value: str) -> None:
        dispose()
        notify.close()
        gone.set()

    dispose = notify.listen_chain_completed(once)
    notify.chain_completed(["a"])
    assert gone.wait(30)
    with pytest.raises(ClientClosed):
        notify.listen_chain_completed(ear)
    for thread in listening_threads():
        thread.join(10)


def test_close_during_a_subscription(database_url: str) -> None:
    """Connecting cannot be interrupted in a thread: close waits for it."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as threads:
        url = f"postgresql://postgres@127.0.0.1:{server.getsockname()[1]}/postgres?sslmode=disable&connect_timeout=2"
        adapter = sync_psycopg_notify(database_url, listen_url=url)
        subscribing = threads.submit(adapter.listen_chain_completed, ThreadEar())
        connection, _ = server.accept()
        adapter.close()
        assert not listening_threads()
        with pytest.raises((ClientClosed, StorageUnavailable)):
            subscribing.result(10)
        connection.close()


def test_a_channel_that_cannot_be_reached(database_url: str) -> None:
    adapter = sync_psycopg_notify(database_url, listen_url="postgresql://postgres@127.0.0.1:1/postgres")
    with pytest.raises(StorageUnavailable):
        adapter.listen_chain_completed(ThreadEar())
    assert not listening_threads()
    adapter.close()


def test_listening_needs_a_url(notify: Any) -> None:
    with pytest.raises(InvalidArgument, match="listen_url"):
        sync_psycopg_notify(notify._provider)


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
        assert waiting.result(30) == "hello"
        assert client.hook_failures == 0
    assert not listening_threads()
