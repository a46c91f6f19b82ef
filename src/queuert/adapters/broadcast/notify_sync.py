"""A notify adapter for a sync client, but for the broker: how to publish, and how to open what listens."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from queuert.adapters.broadcast.listener_thread import ListenerThread, OpenSyncLink
from queuert.adapters.broadcast.messages import Subscriptions, Topic
from queuert.adapters.broadcast.pauses import HEARTBEAT
from queuert.errors import ClientClosed
from queuert.ports.notify import Callback, SyncDispose


class SyncBroadcastNotify(ABC):
    """Publishes through `_send`, and listens in one thread for everybody. Without wake hints, unless overridden."""

    def __init__(self, open_link: OpenSyncLink, topics: Mapping[str, Topic], *, heartbeat: float = HEARTBEAT) -> None:
        """`topics` by the name of their channel. Only `chain_completed` is ever listened to."""
        self._open_link = open_link
        self._heartbeat = heartbeat
        self._subscriptions = Subscriptions(topics)
        self._mutex = threading.Lock()
        self._listener: ListenerThread | None = None
        self._closed = False

    @abstractmethod
    def _send(self, topic: Topic, values: Sequence[str]) -> None:
        """Publish the values, of which there is at least one."""

    @abstractmethod
    def _release(self) -> None:
        """Close what is ours to close, after the listener. Called by each `close`: a second time does nothing."""

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:  # noqa: ARG002
        self._check_open()

    def job_scheduled(self, types: Sequence[str]) -> None:
        self._publish("job_scheduled", types)

    def chain_completed(self, chain_ids: Sequence[str]) -> None:
        self._publish("chain_completed", chain_ids)

    def ownership_lost(self, job_ids: Sequence[str]) -> None:
        self._publish("ownership_lost", job_ids)

    def listen_chain_completed(self, callback: Callback) -> SyncDispose:
        self._check_open()
        subscription = self._subscriptions.add("chain_completed", callback)

        def dispose() -> None:
            self._subscriptions.remove(subscription)
            self._stop(only_if_unused=True)

        try:
            self._active()
            self._check_open()
        except BaseException:
            dispose()
            raise
        return dispose

    def close(self) -> None:
        self._closed = True
        self._subscriptions.clear()
        self._stop()
        self._release()

    def _publish(self, topic: Topic, values: Sequence[str]) -> None:
        self._check_open()
        if values:
            self._send(topic, values)

    def _active(self) -> None:
        with self._mutex:
            if self._listener is None:
                self._listener = ListenerThread(self._open_link, self._subscriptions, self._heartbeat)
                self._listener.start()
            outcome = self._listener.wanted()
        outcome.result()

    def _stop(self, *, only_if_unused: bool = False) -> None:
        with self._mutex:
            if only_if_unused and self._subscriptions:
                return
            listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")
