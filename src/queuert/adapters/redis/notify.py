"""Notifications through Redis, for an async client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from queuert.adapters.broadcast.listener import Link, OnLost, OnMessage, OpenLink
from queuert.adapters.broadcast.messages import Topic, pack
from queuert.adapters.broadcast.notify import BroadcastNotify
from queuert.adapters.finishing import finish
from queuert.adapters.redis.names import CONSUME, LONGEST_PAYLOAD, PROVIDE, Names, Script, from_url, text, unavailable
from queuert.ports.notify import NotifyAdapter

READ_TIMEOUT = 3600.0
"""Seconds. Some versions of the client take "for ever" for the socket's timeout."""


def connect(url: str) -> Any:
    """A client of our own."""
    return from_url(Redis, url, Retry(NoBackoff(), 1))


class RedisNotify(BroadcastNotify):
    """Made by `redis_notify`. It publishes through the client, and listens on one connection of its pool.

    `owned`: the client is closed, too.
    """

    def __init__(self, client: Any, names: Names, *, owned: bool = False) -> None:
        super().__init__(redis_link(client, names), names.topics)
        self._client = client
        self._names = names
        self._owned = owned

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._check_open()
        keys, values = self._names.provided(counts)
        if keys:
            await self._run(PROVIDE, keys, values)

    async def consume_wake_hint(self, type_name: str) -> bool:
        self._check_open()
        return bool(await self._run(CONSUME, [self._names.hint(type_name)], []))

    async def _send(self, topic: Topic, values: Sequence[str]) -> None:
        try:
            for payload in pack(values, LONGEST_PAYLOAD):
                await self._client.publish(self._names.channels[topic], payload)
        except RedisError as error:
            raise unavailable(error) from error

    async def _run(self, script: Script, keys: list[str], arguments: list[int]) -> Any:
        try:
            try:
                return await self._client.evalsha(script.digest, len(keys), *keys, *arguments)
            except NoScriptError:
                return await self._client.eval(script.text, len(keys), *keys, *arguments)
        except RedisError as error:
            raise unavailable(error) from error

    async def _release(self) -> None:
        if self._owned:
            await self._client.aclose()


def redis_link(client: Any, names: Names) -> OpenLink:
    async def open_link(on_message: OnMessage, on_lost: OnLost) -> Link:
        link = RedisLink(client.pubsub(), on_message, on_lost)
        try:
            await link.subscribe(list(names.topics))
        except BaseException as error:
            await finish(link.close())
            if isinstance(error, RedisError | OSError):
                raise unavailable(error) from error
            raise
        return link

    return open_link


class RedisLink:
    """A task of its own reads."""

    def __init__(self, pubsub: Any, on_message: OnMessage, on_lost: OnLost) -> None:
        self._pubsub = pubsub
        self._on_message = on_message
        self._on_lost = on_lost
        self._retry: Any = None
        self._pong: asyncio.Future[None] | None = None
        self._reader: asyncio.Task[None] | None = None

    async def subscribe(self, channels: list[str]) -> None:
        await self._pubsub.subscribe(*channels)
        # The client would connect again by itself, slowly, and say nothing of what it missed.
        connection = self._pubsub.connection
        self._retry, connection.retry = connection.retry, Retry(NoBackoff(), 0, supported_errors=())
        confirmed = 0
        while confirmed < len(channels):
            confirmed += await self._next() == "subscribe"
        self._reader = asyncio.create_task(self._read(), name="queuert-redis-reader")

    async def ping(self) -> None:
        self._pong = asyncio.get_running_loop().create_future()
        await self._pubsub.ping()
        await self._pong

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])
        if self._retry is not None:
            self._pubsub.connection.retry = self._retry
        try:
            await self._pubsub.aclose()
        except (RedisError, OSError):
            return  # it was lost before

    async def _read(self) -> None:
        try:
            while await self._next() != "subscribe":
                pass
            # It has subscribed a second time: the connection is a new one after all.
        except (RedisError, OSError, UnicodeError):
            pass
        self._on_lost()

    async def _next(self) -> str | None:
        message = await self._pubsub.get_message(timeout=READ_TIMEOUT)
        if message is None:
            return None
        kind: str = message["type"]
        if kind == "message":
            self._on_message(text(message["channel"]), message["data"])
        elif kind == "pong" and self._pong is not None and not self._pong.done():
            self._pong.set_result(None)
        return kind


if TYPE_CHECKING:
    _: type[NotifyAdapter] = RedisNotify
