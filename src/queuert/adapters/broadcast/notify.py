"""A notify adapter for an async client, but for the broker: how to publish, and how to open what listens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial

from queuert.adapters.broadcast.listener import Listener, OpenLink
from queuert.adapters.broadcast.messages import TOPICS, Subscriptions, Topic
from queuert.adapters.broadcast.outbox import Outbox
from queuert.adapters.broadcast.pauses import HEARTBEAT
from queuert.adapters.finishing import finish
from queuert.errors import ClientClosed
from queuert.ports.notify import Callback, Dispose


class BroadcastNotify(ABC):
    """Publishes through `_send`, and listens on one connection for everybody. Without wake hints, unless overridden."""

    def __init__(self, open_link: OpenLink, topics: Mapping[str, Topic], *, heartbeat: float = HEARTBEAT) -> None:
        """`topics` by the name of their channel."""
        self._subscriptions = Subscriptions(topics)
        self._listener = Listener(open_link, self._subscriptions, heartbeat)
        self._outboxes = {topic: Outbox(partial(self._send, topic)) for topic in TOPICS}
        self._closed = False

    @abstractmethod
    async def _send(self, topic: Topic, values: Sequence[str]) -> None:
        """Publish the values, of which there is at least one."""

    @abstractmethod
    async def _release(self) -> None:
        """Close what is ours to close, after the listener. Called by each `close`: a second time does nothing."""

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._check_open()

    async def consume_wake_hint(self, type_name: str) -> bool:  # noqa: ARG002
        self._check_open()
        return True

    async def job_scheduled(self, types: Sequence[str]) -> None:
        await self._publish("job_scheduled", types)

    async def chain_completed(self, chain_ids: Sequence[str]) -> None:
        await self._publish("chain_completed", chain_ids)

    async def ownership_lost(self, job_ids: Sequence[str]) -> None:
        await self._publish("ownership_lost", job_ids)

    async def listen_job_scheduled(self, callback: Callback) -> Dispose:
        return await self._listen("job_scheduled", callback)

    async def listen_chain_completed(self, callback: Callback) -> Dispose:
        return await self._listen("chain_completed", callback)

    async def listen_ownership_lost(self, callback: Callback) -> Dispose:
        return await self._listen("ownership_lost", callback)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._subscriptions.clear()
            self._listener.stop()
        await finish(self._end())

    async def _end(self) -> None:
        await self._listener.stopped()
        await self._release()

    async def _publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._check_open()
        if values:
            await self._outboxes[topic].send(values)

    async def _listen(self, topic: Topic, callback: Callback) -> Dispose:
        self._check_open()
        subscription = self._subscriptions.add(topic, callback)
        try:
            await self._listener.active()
            self._check_open()
        except BaseException:
            self._subscriptions.remove(subscription)
            self._listener.stop_if_unused()
            raise

        async def dispose() -> None:
            self._subscriptions.remove(subscription)
            self._listener.stop_if_unused()
            await self._listener.stopped()

        return dispose

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")
