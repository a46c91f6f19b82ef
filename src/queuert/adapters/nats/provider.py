"""NATS as a notify provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nats.errors import Error

from queuert.adapters.finishing import finish
from queuert.adapters.nats.connection import Connection, until_lost
from queuert.adapters.nats.hints import Hints
from queuert.ports.notify import NotifyProvider, OnMessage

SUBSCRIBE_SECONDS = 10.0
"""How long a subscription waits for a connection that was lost."""


class NatsProvider:
    """Publishes and listens through one connection."""

    name = "NATS"
    max_payload = 60_000
    """Bytes. By default, a server allows a million."""

    def __init__(self, source: str | Any) -> None:
        self._connection = Connection(source)

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        client = await self._connection.client()
        for message in messages:
            await client.publish(channel, message.encode())

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        """The library would renew subscriptions when it reconnects, and not report what it missed.

        So a connection that was lost ends the subscription, and the next call subscribes again.
        """

        async def receive(message: Any) -> None:
            on_message(message.subject, message.data)

        client = await self._connection.connected(SUBSCRIBE_SECONDS)
        connects = client.stats["reconnects"]
        subscriptions: list[Any] = []
        try:
            for channel in channels:
                subscriptions.append(await client.subscribe(channel, cb=receive))  # noqa: PERF401  # to end these on an error
            ready()
            await until_lost(client, connects)
        finally:
            await finish(_unsubscribe(subscriptions))

    async def close(self) -> None:
        await self._connection.close()


class HintingNatsProvider(NatsProvider):
    """With wake hints, in a bucket."""

    def __init__(self, source: str | Any, prefix: str, bucket: str) -> None:
        super().__init__(source)
        self._hints = Hints(self._connection, prefix, bucket)

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        await self._hints.provide(counts)

    async def consume_wake_hint(self, type_name: str) -> bool:
        return await self._hints.consume(type_name)


async def _unsubscribe(subscriptions: list[Any]) -> None:
    for subscription in subscriptions:
        with suppress(Error, OSError):  # the connection is gone, and the subscription with it
            await subscription.unsubscribe()


if TYPE_CHECKING:
    _: tuple[type[NotifyProvider], ...] = (NatsProvider, HintingNatsProvider)
