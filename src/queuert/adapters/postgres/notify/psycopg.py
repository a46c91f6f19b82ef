"""Listening with psycopg.

The event loop watches the socket, so an idle connection costs nothing. psycopg's own `notifies()`
would wake up ten times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import PGnotify

from queuert.adapters.finishing import finish
from queuert.adapters.postgres.drivers.psycopg_connection import AnyConnection, query, translated
from queuert.adapters.postgres.notify.channels import listen
from queuert.adapters.postgres.notify.provider import APPLICATION, PostgresChannels, Storage
from queuert.ports.notify import NotifyProvider, OnMessage


class PsycopgChannels(PostgresChannels):
    _reader: Reader

    @staticmethod
    def storage(source: Any, *, prepare: bool) -> Storage:
        from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider

        return PsycopgProvider(source, prepare=prepare, max_size=2)

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        try:
            connection = await _connect(self._url)
            try:
                # Handles notifications that arrive while psycopg itself reads the socket.
                connection.add_notify_handler(lambda message: on_message(message.channel, message.payload))
                await connection.execute(query(listen(channels)))
                self._reader = Reader(connection, on_message)
                ready()
                await self._reader.until_lost()
            finally:
                await finish(connection.close())
        except psycopg.Error as error:
            raise translated(error, inside=False) from error

    async def ping(self) -> None:
        await self._reader.ping()


async def _connect(url: str) -> AsyncConnection[Any]:
    try:
        return await AsyncConnection.connect(
            url, autocommit=True, client_encoding="utf8", fallback_application_name=APPLICATION
        )
    except asyncio.CancelledError as cancelled:
        # A half-open connection is closed when it is garbage collected; the traceback would keep it
        # alive.
        raise cancelled.with_traceback(None) from None


class Reader:
    """Reads what the server sends without being asked."""

    def __init__(self, connection: AsyncConnection[Any], on_message: OnMessage) -> None:
        self._connection = connection
        self._on_message = on_message
        self._lost = asyncio.Event()
        self._answered = asyncio.Event()

    async def until_lost(self) -> None:
        loop, socket = asyncio.get_running_loop(), self._connection.pgconn.socket
        loop.add_reader(socket, self._read)
        try:
            self._read()
            await self._lost.wait()
        finally:
            loop.remove_reader(socket)

    async def ping(self) -> None:
        """Check that the server answers. psycopg's own calls would read the socket themselves, and
        wait too long for a silent server.
        """
        self._answered.clear()
        send_ping(self._connection)
        await self._answered.wait()

    def _read(self) -> None:
        try:
            for message in read_messages(self._connection):
                self._on_message(message.relname.decode(), message.extra)
            if has_answered(self._connection):
                self._answered.set()
        except psycopg.OperationalError:
            self._lost.set()


def read_messages(connection: AnyConnection) -> Iterator[PGnotify]:
    """The notifications that have arrived. Reads the socket, and does not wait."""
    connection.pgconn.consume_input()
    while message := connection.pgconn.notifies():
        yield message


def send_ping(connection: AnyConnection) -> None:
    """Send a query that does nothing.

    After reading, `has_answered` tells whether the server has answered it.
    """
    connection.pgconn.send_query(b"SELECT 1")
    connection.pgconn.flush()


def has_answered(connection: AnyConnection) -> bool:
    pgconn = connection.pgconn
    while not pgconn.is_busy():
        if pgconn.get_result() is None:
            return True
    return False


if TYPE_CHECKING:
    _: type[NotifyProvider] = PsycopgChannels
