"""Notifications through NATS, for a sync client: the async adapter, on an event loop in a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from queuert.adapters.nats.connection import Connection
from queuert.adapters.nats.loop_thread import Loop
from queuert.adapters.nats.names import Names
from queuert.adapters.nats.notify import NatsNotify
from queuert.errors import ClientClosed
from queuert.ports.notify import Callback, SyncDispose, SyncNotifyAdapter


class SyncNatsNotify:
    """Made by `sync_nats_notify`. Callbacks are called in the thread of the event loop."""

    def __init__(self, url: str, names: Names, bucket: str | None) -> None:
        self._adapter = NatsNotify(Connection(url), names, bucket, listens=["chain_completed"])
        self._loop = Loop()
        self._closed = False

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._check_open()
        self._loop.run(lambda: self._adapter.provide_wake_hints(counts))

    def job_scheduled(self, types: Sequence[str]) -> None:
        self._check_open()
        self._loop.run(lambda: self._adapter.job_scheduled(types))

    def chain_completed(self, chain_ids: Sequence[str]) -> None:
        self._check_open()
        self._loop.run(lambda: self._adapter.chain_completed(chain_ids))

    def ownership_lost(self, job_ids: Sequence[str]) -> None:
        self._check_open()
        self._loop.run(lambda: self._adapter.ownership_lost(job_ids))

    def listen_chain_completed(self, callback: Callback) -> SyncDispose:
        self._check_open()
        dispose = self._loop.run(lambda: self._adapter.listen_chain_completed(callback))

        def dispose_here() -> None:
            if not self._closed:
                self._loop.run_from_anywhere(dispose)

        return dispose_here

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._loop.close(self._adapter.close)

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("notify adapter")


if TYPE_CHECKING:
    _: type[SyncNotifyAdapter] = SyncNatsNotify
