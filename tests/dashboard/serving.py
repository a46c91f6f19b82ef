"""The shop and its dashboard behind a real server, in a thread: browsers are driven from the test's own."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from tests.dashboard import shop

import queuert
from queuert import Client, Worker, testing
from queuert.dashboard import Access
from queuert.operate.dashboard.doors.asgi import AsgiDoor

T = TypeVar("T")

PREFIX = "/ops/jobs"


def who(request: Request) -> Access | None:
    return Access("reader", "bob") if request.headers.get("x-user") == "bob" else Access("operator", "ada")


class Served:
    """`run` runs a coroutine on the server's event loop, with the client."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.stock: shop.Stock
        self._loop = asyncio.new_event_loop()
        self._client: Client[Any]
        self._door: AsgiDoor
        self._app: Starlette
        self._serving: asyncio.Task[None]
        self._ended = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    @property
    def insecure_url(self) -> str:
        return f"http://jobs.test:{self.port}{PREFIX}"

    def run(self, call: Callable[[Client[Any]], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(call(self._client), self._loop).result(60)

    def working(self) -> None:
        """Run a worker until nothing is left to do."""

        async def work(client: Client[Any]) -> None:
            async with testing.running(client, shop.handlers) as run:
                await run.until_idle()

        self.run(work)

    def wait_for_streams(self, number: int) -> None:
        """Until so many pages listen."""

        async def wait(_: Client[Any]) -> None:
            while self._door._changes is not None and len(self._door._changes._streams) != number:
                await asyncio.sleep(0.01)

        self.run(wait)

    def heard_by_all(self) -> None:
        """Until every page that listens was told of the last change."""

        async def wait(_: Client[Any]) -> None:
            changes = self._door._changes
            while changes is not None and any(each.is_set() for each in changes._streams):
                await asyncio.sleep(0.01)

        self.run(wait)

    async def serve(self, listening: socket.socket, ready: threading.Event) -> None:
        async with queuert.connect("memory://", jobs=shop.JOBS) as client:
            self._client = client
            self.stock = await shop.fill(client)
            app = Starlette()
            self._door = shop.make(client, who, hide=["card"]).asgi
            app.mount(PREFIX, self._door)
            self._app = app
            async with Worker(client, shop.idle_handlers, release="2026.11.17"):
                self._begin(listening)
                ready.set()
                await self._ended.wait()
                await self._stop()

    def _begin(self, listening: socket.socket) -> None:
        config = uvicorn.Config(self._app, log_level="critical", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self._serving = asyncio.create_task(self.server.serve(sockets=[listening]))

    async def _stop(self) -> None:
        self.server.should_exit = True
        await self._serving

    @contextmanager
    def gone(self) -> Generator[None]:
        """Meanwhile nothing answers at its address. The client lives on."""

        async def leave(_: Client[Any]) -> None:
            await self._stop()

        async def come_back(_: Client[Any]) -> None:
            self._begin(socket.create_server(("127.0.0.1", self.port)))

        self.run(leave)
        yield
        self.run(come_back)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)


@contextmanager
def served() -> Generator[Served]:
    listening = socket.create_server(("127.0.0.1", 0))
    site, ready = Served(listening.getsockname()[1]), threading.Event()
    thread = threading.Thread(target=lambda: site._loop.run_until_complete(site.serve(listening, ready)))
    thread.start()
    try:
        assert ready.wait(60)
        yield site
    finally:
        site.end()
        thread.join(60)
        site._loop.close()
