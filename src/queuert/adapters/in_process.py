"""Notifications inside one process, and none at all.

An `InProcessHub` connects clients, workers and waiters of one process, on event loops and in
threads. Publishers call the listeners directly.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from queuert.adapters.broadcast.messages import Subscriptions
from queuert.errors import ClientClosed
from queuert.ports.notify import Callback, Dispose, NotifyAdapter, Topic

__all__ = ["InProcessHub", "InProcessNotify", "NoNotify"]


class InProcessHub:
    """Listeners and wake hints, shared by the adapters that are given this hub."""

    def __init__(self) -> None:
        self.subscriptions = Subscriptions({})
        self._mutex = threading.Lock()
        self._hints: dict[str, int] = {}

    def subscribe(self, topic: Topic, callback: Callback) -> object:
        """Active when this returns. The result is for `unsubscribe`."""
        return self.subscriptions.add(topic, callback)

    def unsubscribe(self, subscription: object) -> None:
        """Remove a subscription. A second call does nothing."""
        self.subscriptions.remove(subscription)

    def publish(self, topic: Topic, values: Sequence[str]) -> None:
        for value in values:
            self.subscriptions.call(topic, value)

    def provide(self, counts: Mapping[str, int]) -> None:
        with self._mutex:
            for type_name, count in counts.items():
                if count > 0:
                    self._hints[type_name] = self._hints.get(type_name, 0) + count

    def consume(self, type_name: str) -> bool:
        """A budget that is used up is kept, so that one job does not make every idle worker query
        the database.
        """
        with self._mutex:
            left = self._hints.get(type_name)
            if left:
                self._hints[type_name] = left - 1
            return left != 0


class InProcessNotify:
    """Notifies every adapter that shares the hub. Without a hub it makes its own."""

    immediate = True

    def __init__(self, hub: InProcessHub | None = None) -> None:
        self.hub = InProcessHub() if hub is None else hub
        self._subscriptions: set[object] = set()
        self._closed = False

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._check_open()
        self.hub.publish(topic, values)

    async def listen(self, topic: Topic, callback: Callback) -> Dispose:
        self._check_open()
        subscription = self.hub.subscribe(topic, callback)
        self._subscriptions.add(subscription)
        if self._closed:  # by another thread, which may not have seen this subscription
            self._end(subscription)
        self._check_open()

        async def dispose() -> None:
            self._end(subscription)

        return dispose

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._check_open()
        self.hub.provide(counts)

    async def consume_wake_hint(self, type_name: str) -> bool:
        self._check_open()
        return self.hub.consume(type_name)

    async def close(self) -> None:
        self._closed = True
        for subscription in list(self._subscriptions):
            self._end(subscription)

    def _end(self, subscription: object) -> None:
        self._subscriptions.discard(subscription)
        self.hub.unsubscribe(subscription)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")


class NoNotify(InProcessNotify):
    """Sends no notifications: workers and waiters poll."""

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:  # noqa: ARG002
        self._check_open()

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._check_open()


if TYPE_CHECKING:
    _: tuple[type[NotifyAdapter], ...] = (InProcessNotify, NoNotify)
