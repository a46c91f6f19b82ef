"""`/live`, `/ready` and `/metrics` over HTTP. One small request is read and answered, no more."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator
from http import HTTPStatus

from queuert.base.contexts import async_context
from queuert.operate.cli.supervisor.metrics import CONTENT_TYPE
from queuert.operate.cli.supervisor.supervisor import Supervisor
from queuert.operate.exits import CommandError

logger = logging.getLogger("queuert.supervisor")

REQUEST_WITHIN = 5.0
"""Seconds that a client may take to send its request, and to read the answer."""
LONGEST_REQUEST = 16384

Answer = tuple[HTTPStatus, str, str]
"""Status, content type, text."""


def parse_address(text: str) -> tuple[str, int]:
    """`HOST:PORT`, `[IPv6]:PORT`, or `:PORT` for all addresses."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"--health takes HOST:PORT, like 127.0.0.1:8081 or :8081, got {text!r}")
    return host, int(port)


@async_context
async def serving_health(supervisor: Supervisor, host: str, port: int) -> AsyncIterator[None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_WITHIN):
                await _serve(supervisor, reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client is slow, gone, or speaks something else
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(serve, host or None, port, limit=LONGEST_REQUEST)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise CommandError(f"--health {host}:{port} cannot be used: {reason}") from error
    for listening in server.sockets:
        logger.info("/live, /ready and /metrics are at %s:%d", *listening.getsockname()[:2])
    async with server:
        yield


async def _serve(supervisor: Supervisor, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    method, _, rest = head.decode("latin-1").partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    status, content_type, text = await _answer(supervisor, method, path)
    body = text.encode()
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-store",
        "Connection: close",
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == "HEAD" else body))
    await writer.drain()


async def _answer(supervisor: Supervisor, method: str, path: str) -> Answer:
    if method not in ("GET", "HEAD"):
        return HTTPStatus.METHOD_NOT_ALLOWED, "text/plain", "only GET and HEAD are answered\n"
    if path == "/live":
        return HTTPStatus.OK, "text/plain", "alive\n"
    if path == "/ready":
        status = HTTPStatus.OK if supervisor.is_ready else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", json.dumps(supervisor.describe(), indent=1) + "\n"
    if path == "/metrics":
        return HTTPStatus.OK, CONTENT_TYPE, await supervisor.metrics()
    return HTTPStatus.NOT_FOUND, "text/plain", "there are /live, /ready and /metrics\n"
