"""A door that opens with a token: for a dashboard that is served alone.

The token is in the address that is given to the person. The first visit stores it in a cookie, and
leads to the same address without it.
"""

from __future__ import annotations

import hmac
from urllib.parse import urlencode

from queuert.operate.dashboard.core import problem, with_headers
from queuert.operate.dashboard.doors.asgi import AsgiDoor, Receive, Scope, Send, request_of, send_response
from queuert.operate.dashboard.messages import Request, redirect

FIELD = "token"
CLOSED = "Open the address that `queuert dashboard` has printed: it contains the token of this run."


class TokenDoor:
    """An ASGI application in front of the dashboard.

    `cookie` is the name of the cookie: browsers send it to all ports of a host, so each port needs
    its own.
    """

    def __init__(self, door: AsgiDoor, token: str, cookie: str) -> None:
        self._door = door
        self._token = token
        self._cookie = cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._door(scope, receive, send)
            return
        request = request_of(scope)
        if self._opens(_cookies(request).get(self._cookie, "")):
            await self._door(scope, receive, send)
        elif request.method in ("GET", "HEAD") and self._opens(_token(request)):
            kept = f"{self._cookie}={self._token}; HttpOnly; SameSite=Lax; Path=/"
            answer = redirect(_without_token(request), ("set-cookie", kept))
            await send_response(send, with_headers(answer), request.method)
        else:
            await send_response(send, with_headers(problem(request, 403, "No access", CLOSED)), request.method)

    def _opens(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self._token.encode())


def _token(request: Request) -> str:
    values = request.query.get(FIELD)
    return values[0] if values else ""


def _without_token(request: Request) -> str:
    rest = {name: values for name, values in request.query.items() if name != FIELD}
    # With one slash: two would begin the address of another host.
    return request.url(f"/{request.path.lstrip('/')}") + (f"?{urlencode(rest, doseq=True)}" if rest else "")


def _cookies(request: Request) -> dict[str, str]:
    """Those that other servers of this machine have set may be malformed."""
    parts = (part.partition("=") for part in request.headers.get("cookie", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in parts}
