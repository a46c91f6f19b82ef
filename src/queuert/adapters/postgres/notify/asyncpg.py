"""Listening with asyncpg."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import asyncpg

from queuert.adapters.finishing import finish
from queuert.adapters.postgres.drivers.asyncpg import DriverError, translated
from queuert.adapters.postgres.drivers.asyncpg_pools import Connection
from queuert.adapters.postgres.notify.locks import SessionLocks
from queuert.adapters.postgres.notify.provider import APPLICATION, PostgresChannels, Storage
from queuert.ports.notify import NotifyProvider, OnMessage

CLOSE_TIMEOUT = 2.0
"""Seconds for the server to answer when we close a connection."""


class AsyncpgChannels(PostgresChannels):
    _connection: asyncpg.Connection[Any]
    _lost: asyncio.Event
    _receive: Callable[[Connection, int, str, object], None]
    _one_at_a_time: asyncio.Lock
    """asyncpg refuses a query while another one is under way."""

    @staticmethod
    def storage(source: Any, *, prepare: bool) -> Storage:
        from queuert.adapters.postgres.drivers.asyncpg import AsyncpgProvider

        return AsyncpgProvider(source, prepare=prepare, max_size=2)

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        def receive(connection: Connection, pid: int, channel: str, payload: object) -> None:  # noqa: ARG001
            on_message(channel, str(payload))

        settings = {} if "application_name=" in self._url else {"application_name": APPLICATION}
        try:
            connection: asyncpg.Connection[Any] = await asyncpg.connect(self._url, server_settings=settings)
            try:
                self._receive = receive
                lost = self._lost = asyncio.Event()
                connection.add_termination_listener(lambda _: lost.set())
                for channel in channels:
                    await connection.add_listener(channel, receive)
                self._connection = connection
                self._one_at_a_time = asyncio.Lock()
                self._locks = SessionLocks(connection.get_server_pid(), self._ask)
                ready()
                await lost.wait()
            finally:
                self._locks = None
                await finish(_close(connection))
        except DriverError as error:
            raise translated(error, inside=False) from error

    async def extend(self, channels: Sequence[str]) -> None:
        async with self._one_at_a_time:
            for channel in channels:
                await self._connection.add_listener(channel, self._receive)

    async def ping(self) -> None:
        await self._ask("SELECT true")

    async def _ask(self, query: str) -> bool:
        async with self._one_at_a_time:
            try:
                return bool(await self._connection.fetchval(query))
            finally:
                if self._connection.is_closed():  # the listener for that may have been told too early
                    self._lost.set()


async def _close(connection: asyncpg.Connection[Any]) -> None:
    with suppress(*DriverError):  # asyncpg has already dropped it
        await connection.close(timeout=CLOSE_TIMEOUT)


if TYPE_CHECKING:
    _: type[NotifyProvider] = AsyncpgChannels
