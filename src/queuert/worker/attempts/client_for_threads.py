"""The worker's client, as the threads of plain `def` handlers see it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from queuert.base.loop_thread import Runner
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.ports.state import SyncStateAdapter
from queuert.ports.sync_notify import SyncNotify

T = TypeVar("T")


class WorkerLoop(Runner):
    """Runs coroutines on the worker's event loop; the handler's thread waits."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Callable[[], Awaitable[T]]) -> T:
        async def call() -> T:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """The adapter belongs to the worker's client, which closes it."""


def client_for_threads(client: Client[Any]) -> SyncClient[Any] | None:
    """A sync client on the same database for plain `def` handlers; None if the driver has no sync
    counterpart.
    """
    state, notify = client.sessions.storage, client.sessions.channel
    if state.sync_provider is None:
        return None
    engine = client.sessions.engine
    for_threads: SyncClient[Any] = SyncClient(
        SyncStateAdapter(engine.state, state.sync_provider),
        SyncNotify(notify, WorkerLoop(asyncio.get_running_loop())),
        engine.jobs,
        generate_id=engine.generate_id,
        validate_id=engine.validate_id,
        migrate=False,
        announce="wait",  # the loop may end before what is left to it
    )
    # The adapters are the client's own, and watched already.
    sessions = for_threads.sessions
    sessions.open()  # the worker's client closes what it uses
    sessions.hook_failures = client.sessions.hook_failures
    sessions.engine = dataclasses.replace(sessions.engine, observers=engine.observers, on_start=engine.on_start)
    return for_threads
