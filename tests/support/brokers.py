"""The brokers, as tests of faults see them: one server each, which a test has for itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import redis
from tests.support.redis import RedisServer

from queuert.adapters.broadcast.messages import Topic
from queuert.adapters.redis import redis_notify, sync_redis_notify

PREFIX = "faults"


class Broker(ABC):
    hints: bool
    """Whether it keeps wake hints."""

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

    @abstractmethod
    def sync_adapter(self, port: int | None = None) -> Any: ...

    @abstractmethod
    async def say(self, topic: Topic, payload: bytes) -> None:
        """Publish anything on our channel, as a stranger would."""

    @abstractmethod
    async def listeners(self) -> int:
        """How many connections listen."""

    async def adapter_says(self, topic: Topic, value: str) -> None:
        """Publish as one of us, from elsewhere."""
        adapter = self.adapter()
        try:
            await getattr(adapter, topic)([value])
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

    def sync_adapter(self, port: int | None = None) -> Any:
        return sync_redis_notify(self.url_of(port or self.port), prefix=PREFIX)

    async def say(self, topic: Topic, payload: bytes) -> None:
        with redis.Redis(port=self.port) as client:
            client.publish(f"{PREFIX}:{topic}", payload)

    async def listeners(self) -> int:
        with redis.Redis(port=self.port) as client:
            return len(client.client_list(_type="pubsub"))


BROKERS: dict[str, type[Broker]] = {"redis": RedisBroker}
