"""Notifications through Redis, for a sync client."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError
from redis.retry import Retry

from queuert.adapters.broadcast.bell import Bell
from queuert.adapters.broadcast.listener import OnMessage
from queuert.adapters.broadcast.listener_thread import OpenSyncLink, SyncLink
from queuert.adapters.broadcast.messages import Topic, pack
from queuert.adapters.broadcast.notify_sync import SyncBroadcastNotify
from queuert.adapters.broadcast.pauses import CONNECT_TIMEOUT
from queuert.adapters.redis.names import LONGEST_PAYLOAD, PROVIDE, TIMEOUT, Names, from_url, text, unavailable
from queuert.ports.notify import SyncNotifyAdapter


def connect(url: str) -> Any:
    """A client of our own."""
    return from_url(Redis, url, Retry(NoBackoff(), 1))


class SyncRedisNotify(SyncBroadcastNotify):
    """Made by `sync_redis_notify`. It publishes through the client, and listens on one connection of its pool.

    `owned`: the client is closed, too.
    """

    def __init__(self, client: Any, names: Names, *, owned: bool = False) -> None:
        super().__init__(sync_redis_link(client, names.channels["chain_completed"]), names.topics)
        self._client = client
        self._names = names
        self._owned = owned

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._check_open()
        keys, values = self._names.provided(counts)
        if not keys:
            return
        try:
            try:
                self._client.evalsha(PROVIDE.digest, len(keys), *keys, *values)
            except NoScriptError:
                self._client.eval(PROVIDE.text, len(keys), *keys, *values)
        except RedisError as error:
            raise unavailable(error) from error

    def _send(self, topic: Topic, values: Sequence[str]) -> None:
        try:
            for payload in pack(values, LONGEST_PAYLOAD):
                self._client.publish(self._names.channels[topic], payload)
        except RedisError as error:
            raise unavailable(error) from error

    def _release(self) -> None:
        if self._owned:
            self._client.close()


def sync_redis_link(client: Any, channel: str) -> OpenSyncLink:
    def open_link(on_message: OnMessage) -> SyncLink:
        link = SyncRedisLink(client.pubsub(), on_message)
        try:
            link.subscribe(channel)
        except BaseException as error:
            link.close()
            if isinstance(error, RedisError | OSError):
                raise unavailable(error) from error
            raise
        return link

    return open_link


class SyncRedisLink:
    def __init__(self, pubsub: Any, on_message: OnMessage) -> None:
        self._pubsub = pubsub
        self._on_message = on_message
        self._retry: Any = None
        self._bell = Bell()

    def subscribe(self, channel: str) -> None:
        self._pubsub.subscribe(channel)
        # The client would connect again by itself, slowly, and say nothing of what it missed.
        connection = self._pubsub.connection
        self._retry, connection.retry = connection.retry, Retry(NoBackoff(), 0, supported_errors=())
        deadline = monotonic() + CONNECT_TIMEOUT
        while self._next() != "subscribe":
            if monotonic() > deadline:
                raise RedisConnectionError("the subscription was not confirmed")

    def receive(self, timeout: float) -> bool:
        connection = self._pubsub.connection
        in_time = self._bell.wait(connection._sock.fileno(), timeout)
        # All of it: what has been read from the socket already does not make it readable again.
        while connection.can_read(timeout=0):
            if self._next() == "subscribe":
                raise RedisConnectionError("the connection was replaced")
        return in_time

    def ping(self) -> None:
        self._pubsub.ping()

    def interrupt(self) -> None:
        self._bell.ring()

    def close(self) -> None:
        if self._retry is not None:
            self._pubsub.connection.retry = self._retry
        with contextlib.suppress(RedisError, OSError):  # it was lost before
            self._pubsub.close()
        self._bell.close()

    def _next(self) -> str | None:
        message = self._pubsub.get_message(timeout=TIMEOUT)
        if message is None:
            return None
        kind: str = message["type"]
        if kind == "message":
            self._on_message(text(message["channel"]), message["data"])
        return kind


if TYPE_CHECKING:
    _: type[SyncNotifyAdapter] = SyncRedisNotify
