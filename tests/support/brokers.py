"""The brokers, as tests of faults see them: one server each, which a test has for itself."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from typing import Any, ClassVar
from urllib.request import urlopen

import nats
import redis
from tests.support.nats import NatsServer
from tests.support.redis import RedisServer
from tests.support.servers import free_port

from queuert.adapters.broadcast.messages import WIRE_NAMES
from queuert.adapters.nats import nats_notify
from queuert.adapters.redis import redis_notify
from queuert.ports.notify import Topic
from queuert.ports.sync_notify import SyncNotify

PREFIX = "faults"


class Broker(ABC):
    hints: bool
    """Whether it keeps wake hints."""

    keeps = False
    """Whether what is published while it is away is kept, and delivered when it is back."""

    options: ClassVar[dict[str, Any]] = {}
    """What `connect` is told beside its URL."""

    port: int

    @property
    def url(self) -> str:
        return self.url_of(self.port)

    @abstractmethod
    def url_of(self, port: int) -> str:
        """The broker's URL, if it is reached through this port."""

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None:
        """Like a crash."""

    @abstractmethod
    def remove(self) -> None: ...

    @abstractmethod
    def adapter(self, port: int | None = None) -> Any:
        """An async adapter."""

    def sync_adapter(self, port: int | None = None) -> Any:
        """An adapter as sync clients use it."""
        return SyncNotify(self.adapter(port))

    @abstractmethod
    async def say(self, topic: Topic, payload: bytes) -> None:
        """Publish anything on our channel, as a stranger would."""

    @abstractmethod
    async def listeners(self) -> int:
        """How many connections listen. Those that have just gone may still be counted."""

    async def until_listeners(self, number: int) -> None:
        """Wait until so many connections listen."""
        async with asyncio.timeout(45):
            while await self.listeners() != number:
                await asyncio.sleep(0.01)

    async def adapter_says(self, topic: Topic, value: str) -> None:
        """Publish as one of us, from elsewhere."""
        adapter = self.adapter()
        try:
            await adapter.publish(topic, [value])
        finally:
            await adapter.close()


class RedisBroker(Broker):
    hints = True

    def __init__(self) -> None:
        # Whoever does not keep up is left behind early.
        limit = ["--client-output-buffer-limit", "pubsub", "1mb", "1mb", "1"]
        self._server = RedisServer(limit)
        self.port = self._server.port

    def url_of(self, port: int) -> str:
        return f"redis://127.0.0.1:{port}/0"

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def remove(self) -> None:
        self._server.remove()

    def adapter(self, port: int | None = None) -> Any:
        return redis_notify(self.url_of(port or self.port), prefix=PREFIX)

    async def say(self, topic: Topic, payload: bytes) -> None:
        with redis.Redis(port=self.port) as client:
            client.publish(f"{PREFIX}:{WIRE_NAMES[topic]}", payload)

    async def listeners(self) -> int:
        with redis.Redis(port=self.port) as client:
            return len(client.client_list(_type="pubsub"))


class NatsBroker(Broker):
    """With wake hints."""

    hints = True
    keeps = True
    options: ClassVar[dict[str, Any]] = {"notify_bucket": "faults"}

    def __init__(self) -> None:
        self._monitor = free_port()
        # Whoever does not keep up is left behind early.
        limits = ["max_pending: 1MB", 'write_deadline: "1s"', f'http: "127.0.0.1:{self._monitor}"']
        self._server = NatsServer(limits)
        self.port = self._server.port

    def url_of(self, port: int) -> str:
        return f"nats://127.0.0.1:{port}"

    def start(self) -> None:
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def remove(self) -> None:
        self._server.remove()

    def adapter(self, port: int | None = None) -> Any:
        return nats_notify(self.url_of(port or self.port), prefix=PREFIX, bucket="faults")

    async def say(self, topic: Topic, payload: bytes) -> None:
        client = await nats.connect(self.url)
        await client.publish(f"{PREFIX}.{WIRE_NAMES[topic]}", payload)
        await client.flush()
        await client.close()

    async def listeners(self) -> int:
        return await asyncio.to_thread(self._count)

    def _count(self) -> int:
        with urlopen(f"http://127.0.0.1:{self._monitor}/connz?subs=1") as answer:
            connections = json.load(answer)["connections"]
        topics = [each.get("subscriptions_list", ()) for each in connections]
        return sum(any(subject.startswith(PREFIX) for subject in subjects) for subjects in topics)


BROKERS: dict[str, type[Broker]] = {"redis": RedisBroker, "nats": NatsBroker}
