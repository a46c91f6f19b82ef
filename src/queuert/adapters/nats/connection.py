"""The connection to NATS: one of ours, made when it is first needed, or one of the user's.

When the connection is lost, the client library tries to reconnect until it succeeds. It keeps what
is published meanwhile, up to a limit, and sends it afterwards.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from time import monotonic
from typing import Any, TypeVar

from nats.aio.client import Client

from queuert.adapters.finishing import finish
from queuert.errors import ClientClosed, NotifyUnavailable

T = TypeVar("T")

logger = logging.getLogger("queuert.notify")

FIRST_CONNECT: dict[str, Any] = {"connect_timeout": 2, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.05}
"""Each server is tried only twice, because a publisher is waiting."""
RECONNECT: dict[str, Any] = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.25}
PINGS: dict[str, Any] = {"ping_interval": 20, "max_outstanding_pings": 2}
"""A dead network reports no error."""
CONNECTED_SECONDS = 1.0
"""How long a publisher waits for the connection to come back."""
LOOK = 0.1
"""Seconds between two checks of what the library has done."""


class ConnectionLost(NotifyUnavailable):
    """The connection was lost before the answer came."""


class Connection:
    def __init__(self, source: str | Any) -> None:
        self._url = source if isinstance(source, str) else None
        self._client: Any = None if isinstance(source, str) else source
        self._connecting = asyncio.Lock()
        self._closed = False
        self._waited_for: int | None = None
        """How often the library had reconnected when a caller last waited for it."""

    async def client(self) -> Any:
        """The client. It may have lost its connection and be about to reconnect."""
        if self._url is not None:
            await self._connect_if_needed(self._url)
        if self._client.is_closed:
            raise NotifyUnavailable("NATS is unavailable: the connection was closed")
        return self._client

    async def connected(self, patience: float) -> Any:
        """The client, connected. Waits up to `patience` seconds while the library reconnects."""
        client = await self.client()
        deadline = monotonic() + patience
        while not client.is_connected:
            if client.is_closed or monotonic() >= deadline:
                raise NotifyUnavailable("NATS is unavailable: there is no connection at the moment")
            await asyncio.sleep(LOOK)
        return client

    async def connected_soon(self) -> Any:
        """The client, connected. Only the first caller waits for a connection that was lost."""
        client = await self.client()
        patience = 0.0 if self._waited_for == client.stats["reconnects"] else CONNECTED_SECONDS
        if not client.is_connected:
            self._waited_for = client.stats["reconnects"]
        return await self.connected(patience)

    async def close(self) -> None:
        """Close the connection, if it is ours."""
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


async def until_lost(client: Any, connects: int) -> None:
    """Wait until the connection is lost, or has been lost since the library had reconnected this
    often.

    The library reports it only to the code that made the client.
    """
    while client.is_connected and client.stats["reconnects"] == connects:  # noqa: ASYNC110
        await asyncio.sleep(LOOK)


async def unless_lost(client: Any, work: Coroutine[Any, Any, T]) -> T:
    """The result. The library itself would wait for its timeout, even if the connection is lost."""
    connects = client.stats["reconnects"]
    working, lost = asyncio.ensure_future(work), asyncio.ensure_future(until_lost(client, connects))
    try:
        await asyncio.wait([working, lost], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ConnectionLost("NATS is unavailable: the connection was lost")
        return working.result()
    finally:
        for task in (working, lost):
            task.cancel()
        await asyncio.wait([working, lost])


async def _connect(url: str) -> Client:
    client = Client()
    try:
        await client.connect(url.split(","), error_cb=_noted, name="queuert", **FIRST_CONNECT, **PINGS)
    except BaseException:
        await finish(client.close())
        raise
    client.options.update(RECONNECT)
    return client


async def _noted(error: Exception) -> None:
    logger.debug("the connection to NATS: %s", error)
