"""Notifications through NATS, for an async client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nats.errors import Error

from queuert.adapters.broadcast.listener import Link, OnLost, OnMessage, OpenLink
from queuert.adapters.broadcast.messages import TOPICS, Topic, pack
from queuert.adapters.broadcast.notify import BroadcastNotify
from queuert.adapters.broadcast.pauses import CONNECT_TIMEOUT
from queuert.adapters.finishing import finish
from queuert.adapters.nats.connection import Connection, until_lost
from queuert.adapters.nats.hints import Hints
from queuert.adapters.nats.names import LONGEST_PAYLOAD, Names, unavailable
from queuert.ports.notify import NotifyAdapter


class NatsNotify(BroadcastNotify):
    """Made by `nats_notify`. It publishes, listens and keeps wake hints through one connection.

    `listens`: the topics that are of interest here.
    """

    def __init__(
        self, connection: Connection, names: Names, bucket: str | None, *, listens: Sequence[Topic] = TOPICS
    ) -> None:
        super().__init__(nats_link(connection, names, listens), names.topics)
        self._connection = connection
        self._names = names
        self._hints = None if bucket is None else Hints(connection, names, bucket)

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._check_open()
        if self._hints is not None and counts:
            await self._hints.provide(counts)

    async def consume_wake_hint(self, type_name: str) -> bool:
        self._check_open()
        return self._hints is None or await self._hints.consume(type_name)

    async def _send(self, topic: Topic, values: Sequence[str]) -> None:
        client = await self._connection.client()
        try:
            for payload in pack(values, LONGEST_PAYLOAD):
                await client.publish(self._names.subjects[topic], payload.encode())
        except (Error, OSError, TimeoutError) as error:
            raise unavailable(error) from error

    async def _release(self) -> None:
        await self._connection.close()


def nats_link(connection: Connection, names: Names, listens: Sequence[Topic]) -> OpenLink:
    async def open_link(on_message: OnMessage, on_lost: OnLost) -> Link:
        async def receive(message: Any) -> None:
            on_message(message.subject, message.data)

        client = await connection.connected(CONNECT_TIMEOUT)
        link = NatsLink(client, names.echo(), on_lost)
        try:
            await link.begin()
            for topic in listens:
                await link.subscribe(names.subjects[topic], receive)
            await link.ping()  # if this comes back, the subscriptions before it have been taken in, too
        except BaseException as error:
            await finish(link.close())
            if isinstance(error, Error | OSError | TimeoutError):
                raise unavailable(error) from error
            raise
        return link

    return open_link


class NatsLink:
    """Subscriptions on a connection. The library would renew them when it connects anew, and say nothing of what was
    missed: so a connection that has been lost counts as lost, and the next link subscribes anew."""

    def __init__(self, client: Any, echo: str, on_lost: OnLost) -> None:
        self._client = client
        self._subscriptions: list[Any] = []
        self._echo = echo
        """A subject of our own."""
        self._heard = asyncio.Event()
        self._on_lost = on_lost
        self._watch = asyncio.create_task(self._until_lost(), name="queuert-nats-watch")

    async def begin(self) -> None:
        await self.subscribe(self._echo, self._hear)

    async def subscribe(self, subject: str, callback: Callable[[Any], Awaitable[None]]) -> None:
        self._subscriptions.append(await self._client.subscribe(subject, cb=callback))

    async def ping(self) -> None:
        """Say something, and hear it. The client's own `flush` must not be given up: when the answer comes after all,
        the client stumbles over it and reads no more."""
        self._heard.clear()
        await self._client.publish(self._echo)
        await self._heard.wait()

    async def _hear(self, _: Any) -> None:
        self._heard.set()

    async def _until_lost(self) -> None:
        await until_lost(self._client)
        self._on_lost()

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.wait([self._watch])
        for subscription in self._subscriptions:
            with suppress(Error, OSError):  # the connection is gone, and the subscription with it
                await subscription.unsubscribe()


if TYPE_CHECKING:
    _: type[NotifyAdapter] = NatsNotify
