"""A network that can be bad: what goes through it can be cut off, or held."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Proxy:
    """Stands between clients and a server on this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0
        self.connected = asyncio.Event()
        """Somebody has come."""
        self.cut_after: int | None = None
        """Cut each connection when so many more bytes have gone to the server: in the middle of a message."""

    def freeze(self) -> None:
        """Nothing goes through any more, in either direction, and nobody is told."""
        self._flows.clear()

    def thaw(self) -> None:
        self._flows.set()

    def cut(self) -> None:
        """End all connections, in the middle of whatever they were saying."""
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected.set()
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, server_writer)
        self._pairs.add(pair)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, server_writer, to_server=True))
                group.create_task(self._forward(server_reader, writer, to_server=False))
        except* OSError:
            pass
        finally:
            self._pairs.discard(pair)
            for each in pair:
                each.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_server: bool) -> None:
        while data := await reader.read(65536):
            await self._flows.wait()
            if to_server and self.cut_after is not None:
                data, self.cut_after = data[: self.cut_after], max(0, self.cut_after - len(data))
                writer.write(data)
                await writer.drain()
                if self.cut_after == 0:
                    raise ConnectionResetError
                continue
            writer.write(data)
            await writer.drain()
        raise ConnectionResetError  # one side has gone, so the other one goes, too


@asynccontextmanager
async def proxy_to(port: int) -> AsyncGenerator[Proxy]:
    proxy = Proxy(port)
    tasks: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(proxy.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.thaw()
        proxy.cut()
        for task in list(tasks):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
