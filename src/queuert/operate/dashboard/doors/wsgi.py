"""The dashboard as a WSGI application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from queuert.base.blocking import run_blocking
from queuert.operate.dashboard.access import Access
from queuert.operate.dashboard.core import Core
from queuert.operate.dashboard.messages import FORM, LARGEST_BODY, Request, Response, fields_of

StartResponse = Callable[..., Any]


class WsgiDoor:
    """A WSGI application."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def __call__(self, environ: Mapping[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        body = _body(environ)
        if body is None:
            response = Response(status=413, body=b"the form is too large\n")
        else:
            response = run_blocking(self._core.respond(request_of(environ, body), finish))
        length = ("content-length", str(len(response.body)))
        start_response(f"{response.status} {HTTPStatus(response.status).phrase}", [*response.headers, length])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]


async def finish(found: Awaitable[Access | None]) -> Access | None:
    """An async `access` gets an event loop of its own: this thread has none."""

    async def wait() -> Access | None:
        return await found

    return asyncio.run(wait())


def request_of(environ: Mapping[str, Any], body: bytes) -> Request:
    headers = {
        name.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for name, value in environ.items()
        if name.startswith("HTTP_")
    }
    is_form = str(environ.get("CONTENT_TYPE", "")).partition(";")[0].strip().lower() == FORM
    return Request(
        method=str(environ["REQUEST_METHOD"]),
        path=_text(environ.get("PATH_INFO", "")),
        prefix=_text(environ.get("SCRIPT_NAME", "")).rstrip("/"),
        query=fields_of(environ.get("QUERY_STRING", "")),
        form=fields_of(body) if is_form else {},
        headers=headers,
        native=environ,
    )


def _text(value: str) -> str:
    """WSGI gives paths as bytes in the shape of text."""
    return value.encode("latin-1").decode("utf-8", "replace")


def _body(environ: Mapping[str, Any]) -> bytes | None:
    """None: it is too large."""
    length = str(environ.get("CONTENT_LENGTH") or "0")
    size = int(length) if length.isascii() and length.isdigit() else 0
    return None if size > LARGEST_BODY else environ["wsgi.input"].read(size) if size else b""
