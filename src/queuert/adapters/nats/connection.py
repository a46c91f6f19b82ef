"""The connection to NATS: ours, made when it is first needed, or the user's, which stays his.

Once it is there, the client library brings it back when it is lost, for as long as it takes. Meanwhile nothing is
published: the library would keep it for later, when everybody looks for himself anyway.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from nats.aio.client import Client
from nats.errors import Error

from queuert.adapters.finishing import finish
from queuert.adapters.nats.names import unavailable
from queuert.errors import ClientClosed, NotifyUnavailable

logger = logging.getLogger("queuert.notify")

FIRST_CONNECT: dict[str, Any] = {"connect_timeout": 2, "max_reconnect_attempts": 1, "reconnect_time_wait": 0.05}
"""Each server gets two tries: whoever publishes, waits."""
RECONNECT: dict[str, Any] = {"max_reconnect_attempts": -1, "reconnect_time_wait": 0.25}
PINGS: dict[str, Any] = {"ping_interval": 20, "max_outstanding_pings": 2}
"""A dead network says nothing."""
LOOK = 0.05
"""Seconds between two looks whether the library has succeeded."""


class Connection:
    def __init__(self, source: str | Any) -> None:
        self._url = source if isinstance(source, str) else None
        self._client: Any = None if isinstance(source, str) else source
        self._connecting = asyncio.Lock()
        self._closed = False

    async def client(self, *, patient: bool = False) -> Any:
        """The client, connected. `patient`: while the library tries to connect again, wait for it."""
        if self._url is not None:
            await self._connect_if_needed(self._url)
        while not self._client.is_connected:
            if self._client.is_closed or not patient:
                raise NotifyUnavailable("NATS does not take part: there is no connection at the moment")
            await asyncio.sleep(LOOK)
        return self._client

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
