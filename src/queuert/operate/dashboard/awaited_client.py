"""A sync client for code that awaits a client: pages are written once, as coroutines.

None of its coroutines suspends, so `queuert.base.blocking.run_blocking` runs such a page.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from queuert.base.blocking import Awaited
from queuert.client.client import Client
from queuert.client.sync_client import SyncClient


class _AwaitedClient:
    def __init__(self, client: SyncClient[Any]) -> None:
        self._client = client
        self.sessions = client.sessions

    def transaction(self) -> Any:
        return Awaited(self._client.transaction())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def call(*args: Any, **options: Any) -> Any:
            return method(*args, **options)

        return call


def awaited(client: SyncClient[Any]) -> Client[Any]:
    return cast("Client[Any]", _AwaitedClient(client))
