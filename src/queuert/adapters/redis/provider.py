"""Redis as a notify provider."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError

from queuert.adapters.finishing import finish
from queuert.adapters.redis.scripts import CONSUME, PROVIDE, Script
from queuert.errors import InvalidArgument
from queuert.ports.notify import NotifyProvider, OnMessage

TIMEOUT = 5.0
"""Seconds for connecting, and for each answer, of clients that we make. The URL may set another."""

_SHAPE = "must look like redis://user:password@host:6379/0"

READ_TIMEOUT = 3600.0
"""Seconds. Some versions of the client replace "no timeout" by the timeout of the socket."""


def connect(url: str) -> Any:
    """A client that repeats a failed call once, at once: the server may have been restarted since
    the last call.
    """
    untyped: Any = Redis
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise InvalidArgument(f"the URL of Redis {_SHAPE}: in a password, write / as %2F and # as %23") from None
    try:
        return untyped.from_url(
            url, socket_timeout=TIMEOUT, socket_connect_timeout=TIMEOUT, retry=Retry(NoBackoff(), 1)
        )
    except ValueError as error:  # the URL is not shown: it may contain a password
        raise InvalidArgument(f"the URL of Redis {_SHAPE} ({error})") from None


class RedisProvider:
    """Publishes through the client, and listens on one connection of its pool."""

    name = "Redis"
    max_payload = 60_000
    """Bytes. Redis allows far more, but sends a message to each subscriber in one piece."""

    def __init__(self, client: Any, prefix: str, *, owned: bool = False) -> None:
        """`owned`: close the client, too."""
        self._client = client
        self._owned = owned
        # In a Redis Cluster the part in braces determines the slot, so one script may use all of
        # these keys.
        self._hint = f"{{{prefix}}}:wake-hint:"
        self._pubsub: Any = None
        self._pong = asyncio.Event()

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        for message in messages:
            await self._client.publish(channel, message)

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        self._pubsub = pubsub = self._client.pubsub()
        retry = None
        try:
            await pubsub.subscribe(*channels)
            # The client would reconnect by itself, slowly, and not report what it missed.
            retry, pubsub.connection.retry = pubsub.connection.retry, Retry(NoBackoff(), 0, supported_errors=())
            confirmed = 0
            while confirmed <= len(channels):  # one more means that the client has reconnected after all
                message = await pubsub.get_message(timeout=READ_TIMEOUT)
                kind = message and message["type"]
                if kind == "message":
                    on_message(_text(message["channel"]), message["data"])
                elif kind == "pong":
                    self._pong.set()
                elif kind == "subscribe":
                    confirmed += 1
                    if confirmed == len(channels):
                        ready()
        finally:
            await finish(_close(pubsub, retry))

    async def ping(self) -> None:
        self._pong.clear()
        await self._pubsub.ping()
        await self._pong.wait()

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        await self._run(PROVIDE, [self._hint + name for name in counts], list(counts.values()))

    async def consume_wake_hint(self, type_name: str) -> bool:
        return bool(await self._run(CONSUME, [self._hint + type_name], []))

    async def close(self) -> None:
        if self._owned:
            await self._client.aclose()

    async def _run(self, script: Script, keys: list[str], arguments: list[int]) -> Any:
        try:
            return await self._client.evalsha(script.digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self._client.eval(script.text, len(keys), *keys, *arguments)


async def _close(pubsub: Any, retry: Any) -> None:
    if retry is not None:
        pubsub.connection.retry = retry
    with suppress(RedisError, OSError):  # the connection was lost before
        await pubsub.aclose()


def _text(value: Any) -> str:
    """A channel's name, whether or not the client decodes what it reads."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


if TYPE_CHECKING:
    _: type[NotifyProvider] = RedisProvider
