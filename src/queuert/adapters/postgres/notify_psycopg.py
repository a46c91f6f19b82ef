"""Listening with psycopg on an event loop.

The loop watches the socket, so that a connection at rest costs nothing; psycopg's own `notifies()` would wake ten
times a second.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg import AsyncConnection

from queuert.adapters.postgres.notify_listener import Link, OnLost, OnMessage, OpenLink
from queuert.adapters.postgres.notify_messages import APPLICATION, Channels
from queuert.adapters.postgres.psycopg_common import query, reraise


def psycopg_link(url: str, channels: Channels) -> OpenLink:
    async def open_link(on_message: OnMessage, on_lost: OnLost) -> Link:
        try:
            connection = await AsyncConnection.connect(
                url, autocommit=True, client_encoding="utf8", fallback_application_name=APPLICATION
            )
            link = PsycopgLink(connection, on_message, on_lost)
            try:
                await link.listen(channels.listen())
            except BaseException:
                await link.close()
                raise
        except psycopg.Error as error:
            raise reraise(error, inside=False) from error
        return link

    return open_link


class PsycopgLink:
    def __init__(self, connection: AsyncConnection[Any], on_message: OnMessage, on_lost: OnLost) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._socket = connection.pgconn.socket
        # For what comes while a statement is under way: then psycopg reads the socket.
        connection.add_notify_handler(lambda message: on_message(message.channel, message.payload))

    async def listen(self, statement: str) -> None:
        await self._connection.execute(query(statement))
        self._watch()

    async def ping(self) -> None:
        """psycopg takes the loop's attention from us while it waits for the answer, and does not give it back."""
        await self._connection.execute("SELECT 1")
        self._watch()

    async def close(self) -> None:
        self._unwatch()
        await self._connection.close()

    def _watch(self) -> None:
        self._loop.add_reader(self._socket, self._read)
        self._read()

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._socket)

    def _read(self) -> None:
        pgconn = self._connection.pgconn
        try:
            pgconn.consume_input()
            while message := pgconn.notifies():
                self._on_message(message.relname.decode(), message.extra)
        except psycopg.OperationalError:
            self._unwatch()
            self._on_lost()
