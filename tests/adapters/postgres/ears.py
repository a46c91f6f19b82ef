"""What tests of LISTEN and NOTIFY share: callbacks that can be waited for, servers that keep silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.adapters.postgres.drivers import Watcher

from queuert.adapters.postgres.adapter import asyncpg_notify, psycopg_notify

ASYNC: dict[str, Callable[..., Any]] = {"psycopg": psycopg_notify, "asyncpg": asyncpg_notify}

LISTENER = "application_name = 'queuert listener'"


def kill_listener(watch: Watcher) -> None:
    """The server ends the connection that listens."""
    (pid,) = watch.others(LISTENER)
    assert watch(f"SELECT pg_terminate_backend({pid}, 5000)") == [True]


class SilentServer:
    """Takes connections and says nothing."""

    def __init__(self) -> None:
        self.url = ""
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.opened.set()
        with contextlib.suppress(ConnectionError):
            while await reader.read(1000):
                pass
        self.closed.set()
        writer.close()


@asynccontextmanager
async def silence() -> AsyncGenerator[SilentServer]:
    found = SilentServer()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    found.url = f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
    try:
        yield found
    finally:
        server.close()
        for writer in found.writers:
            writer.close()
        for writer in found.writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


def listener_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "queuert-listener"]
