"""Notifications through NATS, for an async client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from nats.errors import Error

from queuert.adapters.broadcast.listener import Link, OnLost, OnMessage, OpenLink
from queuert.adapters.broadcast.messages import TOPICS, Topic, pack
from queuert.adapters.broadcast.notify import BroadcastNotify
from queuert.adapters.broadcast.pauses import PING_TIMEOUT
from queuert.adapters.nats.connection import Connection
from queuert.adapters.nats.hints import Hints
from queuert.adapters.nats.names import LONGEST_PAYLOAD, Names, unavailable
from queuert.ports.notify import NotifyAdapter

LOOK = 0.25
"""Seconds between two looks whether the library has connected anew. It tells only the one who made the connection."""


class NatsNotify(BroadcastNotify):
    """Made by `nats_notify`. It publishes, listens and keeps wake hints through one connection.

    `listens`: the topics that are of interest here.
    """

    def __init__(
        self, connection: Connection, names: Names, bucket: str | None, *, listens: Sequence[Topic] = TOPICS
    ) -> None:
        subjects = [names.subjects[topic] for topic in listens]
        super().__init__(nats_link(connection, subjects), names.topics)
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


def nats_link(connection: Connection, subjects: Sequence[str]) -> OpenLink:
    async def open_link(on_message: OnMessage, on_lost: OnLost) -> Link:
        async def receive(message: Any) -> None:
            on_message(message.subject, message.data)

        client = await connection.client(patient=True)
        link = NatsLink(client, on_lost)
        try:
            for subject in subjects:
                link.subscriptions.append(await client.subscribe(subject, cb=receive))
            await link.ping()  # the answer comes after the subscriptions have been taken in
        except BaseException as error:
            await link.close()
            if isinstance(error, Error | OSError | TimeoutError):
                raise unavailable(error) from error
            raise
        return link

    return open_link


class NatsLink:
    """Subscriptions on a connection. The library would renew them when it connects anew, and say nothing of what was
    missed: so a connection that has been lost counts as lost, and the next link subscribes anew."""

    def __init__(self, client: Any, on_lost: OnLost) -> None:
        self.subscriptions: list[Any] = []
        self._client = client
        self._on_lost = on_lost
        self._watch = asyncio.create_task(self._until_lost(), name="queuert-nats-watch")

    async def ping(self) -> None:
        await self._client.flush(PING_TIMEOUT)

    async def _until_lost(self) -> None:
        connects = self._client.stats["reconnects"]
        while self._client.is_connected and self._client.stats["reconnects"] == connects:  # noqa: ASYNC110
            await asyncio.sleep(LOOK)
        self._on_lost()

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.wait([self._watch])
        for subscription in self.subscriptions:
            with suppress(Error, OSError):  # the connection is gone, and the subscription with it
                await subscription.unsubscribe()


if TYPE_CHECKING:
    _: type[NotifyAdapter] = NatsNotify
