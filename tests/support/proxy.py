"""A network that can be bad: what goes through it can be cut off, or held."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class _Flow:
    """One connection through the proxy. Bytes go on while their direction is open."""

    def __init__(self, to_server: bool, to_client: bool) -> None:
        self.to_server, self.to_client = asyncio.Event(), asyncio.Event()
        self.set(to_server, to_client)

    def set(self, to_server: bool, to_client: bool) -> None:
        for event, is_open in ((self.to_server, to_server), (self.to_client, to_client)):
            if is_open:
                event.set()
            else:
                event.clear()


class Proxy:
    """Stands between clients and a server on this machine: a port, or the path of a socket."""

    def __init__(self, target: int | str) -> None:
        self._target = target
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._flows: set[_Flow] = set()
        self._open = (True, True)
        self.port = 0
        self.held = 0
        """How many bytes of clients have been held back."""
        self.connected = asyncio.Event()
        """Somebody has come."""
        self.cut_after: int | None = None
        """Cut each connection when so many more bytes have gone to the server: in the middle of a message."""

    def freeze(self) -> None:
        """Nothing goes through any more, in either direction, and nobody is told."""
        self._set(False, False)

    def freeze_answers(self) -> None:
        """The server gets what it is sent, and its answers do not arrive."""
        self._set(True, False)

    def strand(self) -> None:
        """The connections that there are stay silent. New ones work."""
        self._set(False, False)
        self._open = (True, True)

    def thaw(self) -> None:
        self._set(True, True)

    def _set(self, to_server: bool, to_client: bool) -> None:
        self._open = (to_server, to_client)
        for flow in self._flows:
            flow.set(to_server, to_client)

    def cut(self) -> None:
        """End all connections, in the middle of whatever they were saying."""
        for pair in self._pairs:
            for writer in pair:
                writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connected.set()
        try:
            if isinstance(self._target, str):
                server_reader, server_writer = await asyncio.open_unix_connection(self._target)
            else:
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, server_writer)
        flow = _Flow(*self._open)
        self._pairs.add(pair)
        self._flows.add(flow)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, server_writer, flow.to_server, to_server=True))
                group.create_task(self._forward(server_reader, writer, flow.to_client, to_server=False))
        except* OSError:
            pass
        finally:
            self._pairs.discard(pair)
            self._flows.discard(flow)
            for each in pair:
                each.transport.abort()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event, *, to_server: bool
    ) -> None:
        while data := await reader.read(65536):
            if to_server and not flows.is_set():
                self.held += len(data)
            await flows.wait()
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
async def proxy_to(target: int | str) -> AsyncGenerator[Proxy]:
    proxy = Proxy(target)
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
