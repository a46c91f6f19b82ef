"""Listening with psycopg on an event loop.

The loop watches the socket, so that a connection at rest costs nothing; psycopg's own `notifies()` would wake ten
times a second.
"""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
from psycopg import AsyncConnection

from queuert.adapters.broadcast.listener import Link, OnLost, OnMessage, OpenLink
from queuert.adapters.finishing import finish
from queuert.adapters.postgres.drivers.psycopg_common import has_answered, query, read_messages, reraise, send_ping
from queuert.adapters.postgres.notify.channels import APPLICATION, Channels


def psycopg_link(url: str, channels: Channels) -> OpenLink:
    async def open_link(on_message: OnMessage, on_lost: OnLost) -> Link:
        try:
            connection = await _connect(url)
            link = PsycopgLink(connection, on_message, on_lost)
            try:
                await link.listen(channels.listen())
            except BaseException:
                await finish(link.close())
                raise
        except psycopg.Error as error:
            raise reraise(error, inside=False) from error
        return link

    return open_link


async def _connect(url: str) -> AsyncConnection[Any]:
    try:
        return await AsyncConnection.connect(
            url, autocommit=True, client_encoding="utf8", fallback_application_name=APPLICATION
        )
    except asyncio.CancelledError as cancelled:
        # What was begun is closed when it is forgotten, and the traceback would remember it.
        raise cancelled.with_traceback(None) from None


class PsycopgLink:
    def __init__(self, connection: AsyncConnection[Any], on_message: OnMessage, on_lost: OnLost) -> None:
        self._connection = connection
        self._on_message = on_message
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._socket = connection.pgconn.socket
        self._ping: asyncio.Future[None] | None = None
        # For what comes while psycopg reads the socket.
        connection.add_notify_handler(lambda message: on_message(message.channel, message.payload))

    async def listen(self, statement: str) -> None:
        await self._connection.execute(query(statement))
        self._loop.add_reader(self._socket, self._read)
        self._read()

    async def ping(self) -> None:
        """Not through psycopg: it would take the socket from us, and be slow to give up where nobody answers."""
        self._ping = self._loop.create_future()
        send_ping(self._connection)
        await self._ping

    async def close(self) -> None:
        self._loop.remove_reader(self._socket)
        await self._connection.close()

    def _read(self) -> None:
        try:
            for message in read_messages(self._connection):
                self._on_message(message.relname.decode(), message.extra)
            if self._ping is not None and has_answered(self._connection):
                self._end_ping(None)
        except psycopg.OperationalError as error:
            self._loop.remove_reader(self._socket)
            self._end_ping(error)
            self._on_lost()

    def _end_ping(self, error: psycopg.OperationalError | None) -> None:
        ping, self._ping = self._ping, None
        if ping is None or ping.done():  # given up
            return
        if error is None:
            ping.set_result(None)
        else:
            ping.set_exception(error)
