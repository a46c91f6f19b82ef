"""The connection to NATS: ours, made when it is first needed, or the user's, which stays his.

Once it is there, the client library brings it back when it is lost, for as long as it takes. What is published
meanwhile it keeps, up to a limit, and sends it then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.errors import Error

from queuert.adapters.finishing import finish
from queuert.adapters.nats.names import unavailable
from queuert.errors import ClientClosed, NotifyUnavailable

T = TypeVar("T")

logger = logging.getLogger("queuert.notify")

FIRST_CONNECT: dict[str, Any] = {"connect_timeout": 2, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.05}
"""Each server gets two tries: whoever publishes, waits."""
RECONNECT: dict[str, Any] = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.25}
PINGS: dict[str, Any] = {"ping_interval": 20, "max_outstanding_pings": 2}
"""A dead network says nothing."""
PATIENCE = 1.0
"""Seconds that somebody who has committed may wait for the connection to come back."""
LOOK = 0.1
"""Seconds between two looks at what the library has done."""


class ConnectionLost(NotifyUnavailable):
    """While an answer was waited for."""


class Connection:
    def __init__(self, source: str | Any) -> None:
        self._url = source if isinstance(source, str) else None
        self._client: Any = None if isinstance(source, str) else source
        self._connecting = asyncio.Lock()
        self._closed = False
        self._waited_for: int | None = None
        """How often the library had connected again when somebody began to wait for the next time."""

    async def client(self) -> Any:
        """The client. It may have lost its connection, and be about to connect again."""
        if self._url is not None:
            await self._connect_if_needed(self._url)
        if self._client.is_closed:
            raise NotifyUnavailable("NATS does not take part: the connection was closed")
        return self._client

    async def connected(self, patience: float) -> Any:
        """The client, connected. While the library tries to connect again it is waited for, so many seconds."""
        client = await self.client()
        deadline = monotonic() + patience
        while not client.is_connected:
            if client.is_closed or monotonic() >= deadline:
                raise NotifyUnavailable("NATS does not take part: there is no connection at the moment")
            await asyncio.sleep(LOOK)
        return client

    async def connected_soon(self) -> Any:
        """The client, connected. A connection that was lost is waited for, but only by the first who finds it so."""
        client = await self.client()
        patience = 0.0 if self._waited_for == client.stats["reconnects"] else PATIENCE
        if not client.is_connected:
            self._waited_for = client.stats["reconnects"]
        return await self.connected(patience)

    async def close(self) -> None:
        """If it is ours."""
        self._closed = True
        if self._url is not None:
            async with self._connecting:
                client, self._client = self._client, None
                if client is not None:
                    await client.close()

    async def _connect_if_needed(self, url: str) -> None:
        if self._client is not None and not self._client.is_closed:
            return
        async with self._connecting:
            if self._closed:
                raise ClientClosed("notify adapter")
            if self._client is None or self._client.is_closed:
                self._client = await _connect(url)


async def until_lost(client: Any) -> None:
    """Until the connection is not the one that it was. The library tells only whoever has made the client."""
    connects = client.stats["reconnects"]
    while client.is_connected and client.stats["reconnects"] == connects:  # noqa: ASYNC110
        await asyncio.sleep(LOOK)


async def unless_lost(client: Any, work: Coroutine[Any, Any, T]) -> T:
    """The result. The library would wait for an answer until its time is up, also when the connection is lost."""
    working, lost = asyncio.ensure_future(work), asyncio.ensure_future(until_lost(client))
    try:
        await asyncio.wait([working, lost], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ConnectionLost("NATS does not take part: the connection was lost")
        return working.result()
    finally:
        for task in (working, lost):
            task.cancel()
        await asyncio.wait([working, lost])


async def _connect(url: str) -> Client:
    client = Client()
    try:
        await client.connect(url.split(","), error_cb=_noted, name="queuert", **FIRST_CONNECT, **PINGS)
    except BaseException as error:
        await finish(client.close())
        if isinstance(error, Error | OSError | TimeoutError):
            raise unavailable(error) from error
        raise
    client.options.update(RECONNECT)
    return client


async def _noted(error: Exception) -> None:
    logger.debug("the connection to NATS: %s", error)
