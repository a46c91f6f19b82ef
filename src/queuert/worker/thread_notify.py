"""The worker's async notify adapter, as the threads of plain `def` handlers see it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from queuert.ports.notify import Callback, NotifyAdapter, SyncDispose

T = TypeVar("T")


class ThreadNotify:
    """Implements `SyncNotifyAdapter` by asking the event loop; the thread waits for the answer."""

    def __init__(self, notify: NotifyAdapter, loop: asyncio.AbstractEventLoop) -> None:
        self._notify = notify
        self._loop = loop

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._ask(self._notify.provide_wake_hints(counts))

    def job_scheduled(self, types: Sequence[str]) -> None:
        self._ask(self._notify.job_scheduled(types))

    def chain_completed(self, chain_ids: Sequence[str]) -> None:
        self._ask(self._notify.chain_completed(chain_ids))

    def ownership_lost(self, job_ids: Sequence[str]) -> None:
        self._ask(self._notify.ownership_lost(job_ids))

    def listen_chain_completed(self, callback: Callback) -> SyncDispose:
        dispose = self._ask(self._notify.listen_chain_completed(callback))
        return lambda: self._ask(_awaited(dispose()))

    def close(self) -> None:
        """The adapter belongs to the worker's client, which closes it."""

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()


async def _awaited(step: Any) -> None:
    await step
