"""The dashboard of a SQLite file, mounted below a prefix in each framework, behind a real server in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import uvicorn
from litestar import Litestar, asgi
from starlette.applications import Starlette
from tests.dashboard import shop

import queuert
from queuert.dashboard import Dashboard

PREFIX = "/ops/jobs"


def starlette(dashboard: Dashboard) -> Any:
    app = Starlette()
    app.mount(PREFIX, dashboard.asgi)
    return app


def litestar(dashboard: Dashboard) -> Any:
    @asgi(PREFIX, is_mount=True, copy_scope=True)
    async def mounted(scope: Any, receive: Any, send: Any) -> None:
        await dashboard.asgi(scope, receive, send)

    return Litestar([mounted])


def script_name(dashboard: Dashboard) -> Any:
    """As Flask's and other dispatchers do it."""

    def app(environ: dict[str, Any], start_response: Any) -> Any:
        path = environ["PATH_INFO"]
        if not path.startswith(PREFIX):
            start_response("404 Not Found", [])
            return []
        below = {**environ, "SCRIPT_NAME": PREFIX, "PATH_INFO": path.removeprefix(PREFIX)}
        return dashboard.wsgi(below, start_response)

    return app


@contextmanager
def _django(dashboard: Dashboard) -> Generator[Any]:
    from tests.support.django import set_up

    set_up()
    from django.core.handlers.wsgi import WSGIHandler
    from django.test import override_settings
    from django.urls import path

    class Urls:
        urlpatterns = (path(f"{PREFIX.strip('/')}/", dashboard.django),)

    with override_settings(ROOT_URLCONF=Urls, ALLOWED_HOSTS=["*"]):
        yield WSGIHandler()


@contextmanager
def served_asgi(url: str, mount: Callable[[Dashboard], Any]) -> Generator[str]:
    listening, ready = socket.create_server(("127.0.0.1", 0)), threading.Event()
    servers: list[uvicorn.Server] = []

    async def serve() -> None:
        async with queuert.connect(url, jobs=shop.JOBS) as client:
            config = uvicorn.Config(mount(shop.make(client)), log_level="error", timeout_graceful_shutdown=1)
            servers.append(uvicorn.Server(config))
            ready.set()
            await servers[0].serve(sockets=[listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(60)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{PREFIX}"
    finally:
        for server in servers:
            server.should_exit = True
        thread.join(60)


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def served_wsgi(url: str, *, in_django: bool) -> Generator[str]:
    with ExitStack() as stack:
        client = stack.enter_context(queuert.connect_sync(url, jobs=shop.JOBS))
        dashboard = shop.make(lambda: client)
        app = stack.enter_context(_django(dashboard)) if in_django else script_name(dashboard)
        server = make_server("127.0.0.1", 0, app, _Server, _Quiet)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}{PREFIX}"
        finally:
            server.shutdown()
            thread.join(60)
            server.server_close()


MOUNTS: dict[str, Callable[[str], Any]] = {
    "starlette": lambda url: served_asgi(url, starlette),
    "litestar": lambda url: served_asgi(url, litestar),
    "django": lambda url: served_wsgi(url, in_django=True),
    "wsgi": lambda url: served_wsgi(url, in_django=False),
}
