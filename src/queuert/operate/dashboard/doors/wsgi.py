"""The dashboard as a WSGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from queuert.base.blocking import run_blocking
from queuert.operate.dashboard.access import Access
from queuert.operate.dashboard.core import Core, too_large
from queuert.operate.dashboard.messages import Request, Response, fields_of, is_form, length_of

StartResponse = Callable[..., Any]


class WsgiDoor:
    """A WSGI application."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __call__(self, environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response = run_blocking(self._respond(request_of(environ), environ))
        length = ("content-length", str(len(response.body)))
        start_response(f"{response.status} {HTTPStatus(response.status).phrase}", [*response.headers, length])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]

    async def _respond(self, request: Request, environ: Mapping[str, Any]) -> Response:
        admitted = await self._core.admit(request, finish)
        if isinstance(admitted, Response):
            return admitted
        if is_form(request):
            size = length_of(request)
            if size > admitted.largest:
                return too_large()
            request = replace(request, form=fields_of(environ["wsgi.input"].read(size) if size else b""))
        return await self._core.respond(request, admitted)


async def finish(found: Awaitable[Access | None]) -> Access | None:
    """An async `access` gets an event loop of its own: this thread has none."""

    async def wait() -> Access | None:
        return await found

    return asyncio.run(wait())


def request_of(environ: Mapping[str, Any]) -> Request:
    """The request without its form."""
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_") or name in ("CONTENT_TYPE", "CONTENT_LENGTH")
    }
    return Request(
        method=str(environ["REQUEST_METHOD"]),
        path=_text(environ.get("PATH_INFO", "")),
        prefix=_text(environ.get("SCRIPT_NAME", "")).rstrip("/"),
        query=fields_of(environ.get("QUERY_STRING", "")),
        headers=headers,
        native=environ,
    )


def _text(value: str) -> str:
    """WSGI gives paths as bytes in the shape of text."""
    return value.encode("latin-1").decode("utf-8", "replace")
