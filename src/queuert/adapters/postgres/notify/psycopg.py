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
from queuert.adapters.postgres.drivers.psycopg_conninfo import check_conninfo
from queuert.adapters.postgres.notify.channels import listen
from queuert.adapters.postgres.notify.locks import SessionLocks
from queuert.adapters.postgres.notify.provider import APPLICATION, PostgresChannels, Storage
from queuert.errors import NotifyUnavailable
from queuert.ports.notify import NotifyProvider, OnMessage


class PsycopgChannels(PostgresChannels):
    _reader: Reader

    @staticmethod
    def storage(source: Any, *, prepare: bool) -> Storage:
        from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider

        return PsycopgProvider(source, prepare=prepare, max_size=2)

    @staticmethod
    def check_url(url: str) -> None:
        check_conninfo(url, "listen_url")

    async def subscribe(self, channels: Sequence[str], on_message: OnMessage, ready: Callable[[], None]) -> None:
        try:
            connection = await _connect(self._url)
            try:
                # Handles notifications that arrive while psycopg itself reads the socket.
                connection.add_notify_handler(lambda message: on_message(message.channel, message.payload))
                await connection.execute(query(listen(channels)))
                self._reader = Reader(connection, on_message)
                self._locks = SessionLocks(connection.info.backend_pid, self._reader.ask)
                ready()
                await self._reader.until_lost()
            finally:
                self._locks = None
                await finish(connection.close())
        except psycopg.Error as error:
            raise translated(error, inside=False) from error

    async def extend(self, channels: Sequence[str]) -> None:
        if not await self._reader.ask(f"{listen(channels)}; SELECT true"):
            raise NotifyUnavailable("the connection for notifications was lost")

    async def ping(self) -> None:
        await self._reader.ask("SELECT true")


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
        self._is_true = False
        self._one_at_a_time = asyncio.Lock()

    async def until_lost(self) -> None:
        loop, socket = asyncio.get_running_loop(), self._connection.pgconn.socket
        loop.add_reader(socket, self._read)
        try:
            self._read()
            await self._lost.wait()
        finally:
            loop.remove_reader(socket)
            self._answered.set()  # no answer will come

    async def ask(self, query: str) -> bool:
        """Whether the server answers with true. psycopg's own calls would read the socket
        themselves, and wait too long for a silent server.
        """
        async with self._one_at_a_time:
            if self._lost.is_set():
                return False
            self._is_true = False
            self._answered.clear()
            self._connection.pgconn.send_query(query.encode())
            self._connection.pgconn.flush()
            try:
                await self._answered.wait()
            except asyncio.CancelledError:
                self._lost.set()  # else its answer would be taken for the next one
                raise
            return self._is_true

    def _read(self) -> None:
        try:
            for message in read_messages(self._connection):
                self._on_message(message.relname.decode(), message.extra)
            if self._has_answered():
                self._answered.set()
        except psycopg.OperationalError:
            self._lost.set()

    def _has_answered(self) -> bool:
        pgconn = self._connection.pgconn
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                return True
            self._is_true = result.ntuples > 0 and result.get_value(0, 0) == b"t"
        return False


def read_messages(connection: AnyConnection) -> Iterator[PGnotify]:
    """The notifications that have arrived. Reads the socket, and does not wait."""
    connection.pgconn.consume_input()
    while message := connection.pgconn.notifies():
        yield message


if TYPE_CHECKING:
    _: type[NotifyProvider] = PsycopgChannels
