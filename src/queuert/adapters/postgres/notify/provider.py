"""PostgreSQL's LISTEN and NOTIFY as a notify provider.

NOTIFY is sent after the commit, on a connection of the storage provider: in the user's transaction
it would make all commits in the database wait for each other. There are no wake hints: SKIP LOCKED
keeps the workers apart.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from typing import Any

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.notify.channels import publish
from queuert.adapters.postgres.notify.locks import SessionLocks
from queuert.adapters.postgres.urls import check_url
from queuert.ports.notify import OnMessage
from queuert.ports.provider import AsyncProvider, SyncProvider, TimeLimit

APPLICATION = "queuert listener"
"""The connection's name in pg_stat_activity, unless the URL sets another."""

LIMIT = TimeLimit(5.0)
"""Callers give up earlier than this. So the limit is for statements whose callers no longer
wait.
"""

Storage = AsyncProvider[Any] | SyncProvider[Any]


class PostgresChannels(ABC):
    """Publishes through a storage provider, and listens on one connection of its own."""

    name = "PostgreSQL"

    def __init__(self, url: str, storage: Storage, *, owned: bool = False) -> None:
        """`owned`: close the storage provider, too."""
        self._url = url
        self._storage: Any = storage
        self._is_async = inspect.iscoroutinefunction(storage.execute)
        self._owned = owned
        self._locks: SessionLocks | None = None
        """Of the current connection."""

    async def publish(self, channel: str, messages: Sequence[str]) -> None:
        statement = publish(channel, messages)
        if self._is_async and hasattr(self._storage, "execute_within"):
            # Not on a connection that handlers can take: the worker waits for this.
            await self._storage.execute_within(LIMIT, statement)
        elif self._is_async:
            await self._storage.execute(None, statement)
        else:
            await _in_thread(self._storage, statement)

    @staticmethod
    @abstractmethod
    def storage(source: Any, *, prepare: bool) -> Storage:
        """A storage provider for publishing, from a URL, a pool or a connection."""

    @staticmethod
    def check_url(url: str) -> None:
        """Raise `InvalidArgument` for mistakes in the URL to listen at."""
        check_url(url, "listen_url")

    @abstractmethod
    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None: ...

    @abstractmethod
    async def extend(self, channels: Sequence[str]) -> None: ...

    @abstractmethod
    async def ping(self) -> None: ...

    async def hold(self, key: int) -> int | None:
        locks = self._locks
        session = None if locks is None else await locks.hold(key)
        return session if locks is self._locks else None

    async def release(self, key: int) -> None:
        if self._locks is not None:
            await self._locks.release(key)

    async def close(self) -> None:
        if self._owned:
            await self._storage.close()


def _in_thread(storage: Any, statement: PgStatement) -> Awaitable[Any]:
    """Publish through the provider of a sync client.

    Each call has its own thread, so one that hangs does not block the others. They are daemon
    threads, so they do not delay the interpreter's exit.
    """
    done: Future[Any] = Future()
    done.set_running_or_notify_cancel()

    def execute() -> None:
        try:
            done.set_result(storage.execute(None, statement))
        except Exception as error:
            done.set_exception(error)

    try:
        threading.Thread(target=execute, name="queuert-publisher", daemon=True).start()
    except RuntimeError:  # the interpreter shuts down: no thread can start
        execute()
    return asyncio.wrap_future(done)
