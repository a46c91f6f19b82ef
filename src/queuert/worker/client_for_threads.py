"""The worker's client, as the threads of plain `def` handlers see it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.operations.notifications import Publisher
from queuert.ports.notify import Callback, NotifyAdapter, SyncDispose
from queuert.ports.state import SyncStateAdapter

T = TypeVar("T")


class ThreadNotify:
    """Implements `SyncNotifyAdapter` by asking the event loop; the thread waits for the answer.

    It publishes as the worker's client does, whose patience is limited already.
    """

    immediate = True

    def __init__(self, notify: NotifyAdapter, publisher: Publisher, loop: asyncio.AbstractEventLoop) -> None:
        self._notify = notify
        self._publisher = publisher
        self._loop = loop

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        self._ask(_awaited(self._publisher.provide_wake_hints(counts)))

    def job_scheduled(self, types: Sequence[str]) -> None:
        self._ask(_awaited(self._publisher.job_scheduled(types)))

    def chain_completed(self, chain_ids: Sequence[str]) -> None:
        self._ask(_awaited(self._publisher.chain_completed(chain_ids)))

    def ownership_lost(self, job_ids: Sequence[str]) -> None:
        self._ask(_awaited(self._publisher.ownership_lost(job_ids)))

    def listen_chain_completed(self, callback: Callback) -> SyncDispose:
        dispose = self._ask(self._notify.listen_chain_completed(callback))
        return lambda: self._ask(_awaited(dispose()))

    def close(self) -> None:
        """The adapter belongs to the worker's client, which closes it."""

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()


async def _awaited(step: Awaitable[None] | None) -> None:
    if step is not None:
        await step


def client_for_threads(client: Client[Any]) -> SyncClient[Any] | None:
    """A sync client on the same database for plain `def` handlers; None if the driver has no sync counterpart."""
    provider = client.state.sync_provider
    if provider is None:
        return None
    engine = client.engine
    for_threads: SyncClient[Any] = SyncClient(
        SyncStateAdapter(engine.state, provider),
        ThreadNotify(client.notify, client.engine.notify, asyncio.get_running_loop()),
        engine.jobs,
        generate_id=engine.generate_id,
        validate_id=engine.validate_id,
        migrate=False,
    )
    # The adapters are the client's own, and watched already.
    for_threads.engine = dataclasses.replace(for_threads.engine, observers=engine.observers)
    return for_threads
