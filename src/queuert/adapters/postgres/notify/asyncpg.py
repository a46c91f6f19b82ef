"""Listening with asyncpg."""

from __future__ import annotations

from typing import Any

import asyncpg

from queuert.adapters.broadcast.listener import Link, OnLost, OnMessage, OpenLink
from queuert.adapters.postgres.drivers.asyncpg_connection import reraise
from queuert.adapters.postgres.drivers.asyncpg_sources import Connection, DriverError
from queuert.adapters.postgres.notify.channels import APPLICATION, Channels

GOODBYE = 2.0
"""Seconds for the server to answer when we hang up."""


def asyncpg_link(url: str, channels: Channels) -> OpenLink:
    settings = {} if "application_name=" in url else {"application_name": APPLICATION}

    async def open_link(on_message: OnMessage, on_lost: OnLost) -> Link:
        def receive(connection: Connection, pid: int, channel: str, payload: object) -> None:  # noqa: ARG001
            on_message(channel, str(payload))

        try:
            connection: asyncpg.Connection[Any] = await asyncpg.connect(url, server_settings=settings)
            try:
                connection.add_termination_listener(lambda _: on_lost())
                for channel in channels.topics:
                    await connection.add_listener(channel, receive)
            except BaseException:
                connection.terminate()
                raise
        except DriverError as error:
            raise reraise(error, inside=False) from error
        return AsyncpgLink(connection)

    return open_link


class AsyncpgLink:
    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection

    async def ping(self) -> None:
        await self._connection.execute("SELECT 1")

    async def close(self) -> None:
        try:
            await self._connection.close(timeout=GOODBYE)
        except DriverError:
            return  # asyncpg has cut it off
