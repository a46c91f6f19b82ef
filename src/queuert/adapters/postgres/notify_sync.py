"""Notifications through PostgreSQL's LISTEN and NOTIFY, for a sync client.

A thread of its own listens, from the first subscription to the last; it connects again when the connection is lost.
Callbacks are called in that thread.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.notify_messages import (
    APPLICATION,
    CONNECT_TIMEOUT,
    HEARTBEAT,
    PING_TIMEOUT,
    PUBLISH,
    Channels,
    Pauses,
    Subscriptions,
    Topic,
    pack,
)
from queuert.adapters.postgres.psycopg_common import has_answered, query, read_messages, reraise, send_ping
from queuert.errors import ClientClosed, QueuertError
from queuert.ports.notify import Callback, SyncDispose, SyncNotifyAdapter
from queuert.ports.provider import SyncProvider

logger = logging.getLogger("queuert.notify")


class SyncPostgresNotify:
    """Made by `sync_psycopg_notify`.

    It publishes through the provider, and listens on one connection of its own. `owned`: the provider is closed, too.
    """

    def __init__(
        self,
        provider: SyncProvider[Any],
        listen_url: str,
        channels: Channels,
        *,
        owned: bool = False,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self._provider = provider
        self._owned = owned
        self._listen_url = listen_url
        self._heartbeat = heartbeat
        self._channels = channels
        self._subscriptions = Subscriptions(channels)
        self._mutex = threading.Lock()
        self._listener: ListenerThread | None = None
        self._closed = False

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._check_open()

    def job_scheduled(self, types: Sequence[str]) -> None:
        self._publish("job_scheduled", types)

    def chain_completed(self, chain_ids: Sequence[str]) -> None:
        self._publish("chain_completed", chain_ids)

    def ownership_lost(self, job_ids: Sequence[str]) -> None:
        self._publish("ownership_lost", job_ids)

    def listen_chain_completed(self, callback: Callback) -> SyncDispose:
        self._check_open()
        subscription = self._subscriptions.add("chain_completed", callback)

        def dispose() -> None:
            self._subscriptions.remove(subscription)
            self._stop(only_if_unused=True)

        try:
            self._active()
            self._check_open()
        except BaseException:
            dispose()
            raise
        return dispose

    def close(self) -> None:
        self._closed = True
        self._subscriptions.clear()
        self._stop()
        if self._owned:
            self._provider.close()

    def _publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._check_open()
        if values:
            self._provider.execute(None, PgStatement(PUBLISH, (self._channels.names[topic], pack(values))))

    def _active(self) -> None:
        with self._mutex:
            if self._listener is None:
                statement = self._channels.listen(["chain_completed"])
                self._listener = ListenerThread(self._listen_url, statement, self._subscriptions, self._heartbeat)
                self._listener.start()
            outcome = self._listener.wanted()
        outcome.result()

    def _stop(self, *, only_if_unused: bool = False) -> None:
        with self._mutex:
            if only_if_unused and self._subscriptions:
                return
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")


class ListenerThread:
    """One connection that listens. Who subscribes while there is none makes it try again at once."""

    def __init__(self, url: str, statement: str, subscriptions: Subscriptions, heartbeat: float) -> None:
        self._url = url
        self._statement = statement
        self._subscriptions = subscriptions
        self._heartbeat = heartbeat
        self._pauses = Pauses()
        self._mutex = threading.Lock()
        self._outcome: Future[None] = Future()
        """Of the attempt to connect that comes next, or is under way; done as long as we are connected."""
        self._stopping = False
        self._bell, self._rung = socket.socketpair()
        self._bell.settimeout(0)
        self._rung.settimeout(0)
        self._thread = threading.Thread(target=self._run, name="queuert-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wanted(self) -> Future[None]:
        with self._mutex:
            self._ring()
            return self._outcome

    def stop(self) -> None:
        """Waits for the thread, unless a callback in it is who asks."""
        self._stopping = True
        self._ring()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._live()
        finally:
            with self._mutex:
                self._bell.close()
                self._rung.close()
                if not self._outcome.done():
                    self._outcome.set_exception(ClientClosed("notify adapter"))

    def _live(self) -> None:
        before = False
        while not self._stopping:
            try:
                connection = self._connect()
            except QueuertError as error:
                self._failed(error)
                self._wait(self._pauses.after(0.0))
                continue
            since = monotonic()
            try:
                self._outcome.set_result(None)
                if before:
                    logger.info("listening for PostgreSQL's notifications again")
                    self._subscriptions.missed()
                before = True
                self._listen(connection)
            finally:
                connection.close()
            if not self._stopping:
                with self._mutex:
                    self._outcome = Future()
                logger.warning("the connection that listens for notifications was lost: polling until it is back")
                self._wait(self._pauses.after(monotonic() - since))

    def _connect(self) -> Connection[Any]:
        options: dict[str, Any] = {} if "connect_timeout=" in self._url else {"connect_timeout": int(CONNECT_TIMEOUT)}
        try:
            connection: Connection[Any] = Connection.connect(
                self._url, autocommit=True, client_encoding="utf8", fallback_application_name=APPLICATION, **options
            )
            connection.add_notify_handler(self._receive)
            try:
                connection.execute(query(self._statement))
            except BaseException:
                connection.close()
                raise
        except psycopg.Error as error:
            raise reraise(error, inside=False) from error
        return connection

    def _listen(self, connection: Connection[Any]) -> None:
        """Until the connection is lost, or nobody wants it any more."""
        asked = False
        try:
            while not self._stopping:
                in_time = self._wait(PING_TIMEOUT if asked else self._heartbeat, connection.pgconn.socket)
                for message in read_messages(connection):
                    self._subscriptions.receive(message.relname.decode(), message.extra)
                if asked:
                    asked = not has_answered(connection)
                if not in_time:
                    if asked:
                        return  # it has had its time
                    send_ping(connection)
                    asked = True
        except psycopg.Error:
            return

    def _receive(self, message: psycopg.Notify) -> None:
        self._subscriptions.receive(message.channel, message.payload)

    def _wait(self, timeout: float, descriptor: int | None = None) -> bool:
        """Until something comes from the server, or somebody rings: True; or the time is up."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._rung, selectors.EVENT_READ)
            if descriptor is not None:
                selector.register(descriptor, selectors.EVENT_READ)
            ready = selector.select(timeout)
        with contextlib.suppress(BlockingIOError):
            self._rung.recv(1024)
        return bool(ready)

    def _ring(self) -> None:
        with contextlib.suppress(OSError):  # full, which will do; or the thread has ended
            self._bell.send(b"!")

    def _failed(self, error: QueuertError) -> None:
        with self._mutex:
            outcome, self._outcome = self._outcome, Future()
        outcome.set_exception(error)


if TYPE_CHECKING:
    _: type[SyncNotifyAdapter] = SyncPostgresNotify
