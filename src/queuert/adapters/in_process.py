"""Notifications inside one process, and none at all.

An `InProcessHub` connects clients, workers and waiters of one process, on event loops and in threads alike. Its
publishers call the listeners directly. `NoNotify` and `SyncNoNotify` are for those who are content with polling.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from queuert.adapters.broadcast.messages import Subscriptions, Topic
from queuert.errors import ClientClosed
from queuert.ports.notify import Callback, Dispose, NotifyAdapter, SyncDispose, SyncNotifyAdapter

__all__ = ["InProcessHub", "InProcessNotify", "NoNotify", "SyncInProcessNotify", "SyncNoNotify"]


class InProcessHub:
    """Listeners and wake hints, shared by the adapters that are given this hub."""

    def __init__(self) -> None:
        self.subscriptions = Subscriptions({})
        self._mutex = threading.Lock()
        self._hints: dict[str, int] = {}

    def subscribe(self, topic: Topic, callback: Callback) -> object:
        """Who listens; active when this returns."""
        return self.subscriptions.add(topic, callback)

    def unsubscribe(self, subscription: object) -> None:
        """A second time does nothing."""
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
        """A budget that is used up stays known, so that a crowd woken by one job does not all ask for it."""
        with self._mutex:
            left = self._hints.get(type_name)
            if left:
                self._hints[type_name] = left - 1
            return left != 0


class _Closable:
    def __init__(self) -> None:
        self._closed = False

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")


class _Member(_Closable):
    """One adapter's part in a hub: what it publishes, and the listeners that end with it."""

    def __init__(self, hub: InProcessHub | None = None) -> None:
        super().__init__()
        self.hub = InProcessHub() if hub is None else hub
        self._subscriptions: set[object] = set()

    def _publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._check_open()
        self.hub.publish(topic, values)

    def _provide(self, counts: Mapping[str, int]) -> None:
        self._check_open()
        self.hub.provide(counts)

    def _listen(self, topic: Topic, callback: Callback) -> SyncDispose:
        self._check_open()
        subscription = self.hub.subscribe(topic, callback)
        self._subscriptions.add(subscription)
        if self._closed:  # by another thread, which may have missed this one
            self._end(subscription)
        self._check_open()
        return lambda: self._end(subscription)

    def _end(self, subscription: object) -> None:
        self._subscriptions.discard(subscription)
        self.hub.unsubscribe(subscription)

    def _close(self) -> None:
        self._closed = True
        for subscription in list(self._subscriptions):
            self._end(subscription)


class InProcessNotify(_Member):
    """Notifications to everybody who shares the hub, for an async client. Without a hub it makes its own."""

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._provide(counts)

    async def consume_wake_hint(self, type_name: str) -> bool:
        self._check_open()
        return self.hub.consume(type_name)

    async def job_scheduled(self, types: Sequence[str]) -> None:
        self._publish("job_scheduled", types)

    async def chain_completed(self, chain_ids: Sequence[str]) -> None:
        self._publish("chain_completed", chain_ids)

    async def ownership_lost(self, job_ids: Sequence[str]) -> None:
        self._publish("ownership_lost", job_ids)

    async def listen_job_scheduled(self, callback: Callback) -> Dispose:
        return _awaited(self._listen("job_scheduled", callback))

    async def listen_chain_completed(self, callback: Callback) -> Dispose:
        return _awaited(self._listen("chain_completed", callback))

    async def listen_ownership_lost(self, callback: Callback) -> Dispose:
        return _awaited(self._listen("ownership_lost", callback))

    async def close(self) -> None:
        self._close()


class SyncInProcessNotify(_Member):
    """Notifications to everybody who shares the hub, for a sync client."""

    immediate = True

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._provide(counts)

    def job_scheduled(self, types: Sequence[str]) -> None:
        self._publish("job_scheduled", types)

    def chain_completed(self, chain_ids: Sequence[str]) -> None:
        self._publish("chain_completed", chain_ids)

    def ownership_lost(self, job_ids: Sequence[str]) -> None:
        self._publish("ownership_lost", job_ids)

    def listen_chain_completed(self, callback: Callback) -> SyncDispose:
        return self._listen("chain_completed", callback)

    def close(self) -> None:
        self._close()


class NoNotify(_Closable):
    """Tells nobody anything: workers and waiters find out when they poll."""

    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._check_open()

    async def consume_wake_hint(self, type_name: str) -> bool:  # noqa: ARG002
        self._check_open()
        return True

    async def job_scheduled(self, types: Sequence[str]) -> None:  # noqa: ARG002
        self._check_open()

    async def chain_completed(self, chain_ids: Sequence[str]) -> None:  # noqa: ARG002
        self._check_open()

    async def ownership_lost(self, job_ids: Sequence[str]) -> None:  # noqa: ARG002
        self._check_open()

    async def listen_job_scheduled(self, callback: Callback) -> Dispose:  # noqa: ARG002
        return self._listen()

    async def listen_chain_completed(self, callback: Callback) -> Dispose:  # noqa: ARG002
        return self._listen()

    async def listen_ownership_lost(self, callback: Callback) -> Dispose:  # noqa: ARG002
        return self._listen()

    async def close(self) -> None:
        self._closed = True

    def _listen(self) -> Dispose:
        self._check_open()
        return _awaited(_nothing)


class SyncNoNotify(_Closable):
    """`NoNotify` for a sync client."""

    immediate = True

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._check_open()

    def job_scheduled(self, types: Sequence[str]) -> None:  # noqa: ARG002
        self._check_open()

    def chain_completed(self, chain_ids: Sequence[str]) -> None:  # noqa: ARG002
        self._check_open()

    def ownership_lost(self, job_ids: Sequence[str]) -> None:  # noqa: ARG002
        self._check_open()

    def listen_chain_completed(self, callback: Callback) -> SyncDispose:  # noqa: ARG002
        self._check_open()
        return _nothing

    def close(self) -> None:
        self._closed = True


def _nothing() -> None:
    pass


def _awaited(dispose: SyncDispose) -> Dispose:
    async def dispose_async() -> None:
        dispose()

    return dispose_async


if TYPE_CHECKING:
    _adapters: tuple[type[NotifyAdapter], ...] = (InProcessNotify, NoNotify)
    _sync_adapters: tuple[type[SyncNotifyAdapter], ...] = (SyncInProcessNotify, SyncNoNotify)
