"""The dashboard as an ASGI application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import Any, TypeAlias, cast
from urllib.parse import unquote

from queuert.client.client import Client
from queuert.operate.dashboard.core import Core, too_large
from queuert.operate.dashboard.live import Changes, stream
from queuert.operate.dashboard.messages import Request, Response, fields_of, is_form, length_of

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


class AsgiDoor:
    """An ASGI application."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._changes: Changes | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1000})
            return
        request = request_of(scope)
        response = await self._respond(request, receive)
        if response.events:
            await self._stream(request, response, receive, send)
        else:
            await send_response(send, response, request.method)

    async def _respond(self, request: Request, receive: Receive) -> Response:
        admitted = await self._core.admit(request)
        if isinstance(admitted, Response):
            return admitted
        if is_form(request):
            body = await _body(request, receive, admitted.largest)
            if body is None:
                return too_large()
            request = replace(request, form=fields_of(body))
        return await self._core.respond(request, admitted)

    async def _stream(self, request: Request, response: Response, receive: Receive, send: Send) -> None:
        async def may_see() -> bool:
            return await self._core.who(request) is not None

        await send({"type": "http.response.start", "status": 200, "headers": _headers(response)})

        async def write(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        await stream(self._changes_of(self._core.client()), write, gone, may_see)
        await send({"type": "http.response.body", "body": b""})

    def _changes_of(self, client: Client[Any]) -> Changes:
        """One listener for all streams of a client."""
        if self._changes is None or self._changes.client is not client:
            self._changes = Changes(client)
        return self._changes


def request_of(scope: Scope) -> Request:
    """The request without its form."""
    prefix, path = place_of(scope)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    return Request(
        method=str(scope["method"]),
        path=path,
        prefix=prefix,
        query=fields_of(scope.get("query_string", b"")),
        headers=headers,
        native=_native(scope),
        updates="events",
    )


def place_of(scope: Scope) -> tuple[str, str]:
    """Where the dashboard is mounted, and the path below it."""
    root, path = str(scope.get("root_path", "")).rstrip("/"), str(scope["path"])
    if "litestar_app" in scope:
        # Litestar tells only the rest of the path, with a slash at its end.
        rest = path.rstrip("/")
        whole = unquote(scope["raw_path"].decode("latin-1")).partition("?")[0].rstrip("/")
        mount = whole.removesuffix(rest)
        return (mount if mount.startswith(root) else root + mount), rest or "/"
    # The specification includes the prefix in the path. Some servers leave it out.
    inside = path == root or path.startswith(f"{root}/")
    return root, path.removeprefix(root) if inside else path


def _native(scope: Scope) -> Any:
    """The request of the framework that the dashboard is mounted in, or else the scope."""
    for name in ("app", "litestar_app"):
        for cls in type(scope.get(name)).__mro__:
            package = cls.__module__.partition(".")[0]
            if package == "starlette":
                from starlette.requests import Request as StarletteRequest

                return StarletteRequest(scope)
            if package == "litestar":
                from litestar import Request as LitestarRequest

                return LitestarRequest[Any, Any, Any](cast("Any", scope))
    return scope


async def _body(request: Request, receive: Receive, largest: int) -> bytes | None:
    """None: it is too large."""
    if length_of(request) > largest:
        return None
    parts, size = list[bytes](), 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > largest:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


async def send_response(send: Send, response: Response, method: str) -> None:
    await send({"type": "http.response.start", "status": response.status, "headers": _headers(response)})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else response.body})


def _headers(response: Response) -> list[tuple[bytes, bytes]]:
    given = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    return given if response.events else [*given, (b"content-length", str(len(response.body)).encode())]


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        kind = (await receive())["type"]
        await send({"type": f"{kind}.complete"})
        if kind == "lifespan.shutdown":
            return
