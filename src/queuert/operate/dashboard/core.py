"""From a request to a response: who asks, what for, and what may go wrong.

It knows no framework. The doors turn what their servers give them into a `Request`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any

from queuert.client.client import Client
from queuert.errors import ChainError, ChainNotFound, QueuertError, ScheduleNotFound, SchemaMissing, StorageError
from queuert.operate.dashboard import csrf
from queuert.operate.dashboard.access import Access, AccessCheck
from queuert.operate.dashboard.assets import asset_response
from queuert.operate.dashboard.messages import Request, Response, redirect
from queuert.operate.dashboard.rendering import render
from queuert.operate.dashboard.routes import Route, find
from queuert.operate.dashboard.site import Site, Visit
from queuert.operate.ids import IdNotFound

logger = logging.getLogger("queuert.dashboard")

Finish = Callable[[Awaitable[Access | None]], Awaitable[Access | None]]
"""How a door waits for an async `access`."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = (
    ("content-security-policy", POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)
TROUBLE = "the server answers 503"
"""As the script says it when a page that is open cannot be read again."""
CLOSED = "The dashboard is closed: it was made without access=."


@dataclass(frozen=True)
class Admitted:
    """Who asks, and for which page."""

    access: Access
    route: Route

    @property
    def largest(self) -> int:
        """Bytes that a form may have."""
        return self.route.largest


class Core:
    """Answers requests. `client` is asked for each time: a process that was forked has its own."""

    def __init__(self, site: Site, client: Callable[[], Client[Any]], access: AccessCheck | None) -> None:
        self.site = site
        self.client = client
        self._access = access

    async def admit(self, request: Request, finish: Finish | None = None) -> Admitted | Response:
        """Ask who it is, before the form is read. A response: there is nothing more to do. Never
        raises, except to cancel.
        """
        try:
            found = await self._admit(request, finish)
        except Exception:
            found = _failed(request)
        return found if isinstance(found, Admitted) else with_headers(found)

    async def respond(self, request: Request, admitted: Admitted) -> Response:
        """Answer a request that was admitted, with its form. Never raises, except to cancel."""
        try:
            response = await self._respond(request, admitted)
        except Exception:
            response = _failed(request)
        return with_headers(response)

    async def who(self, request: Request, finish: Finish | None = None) -> Access | None:
        """Who asks. None: this person may not see anything."""
        if self._access is None:
            return None
        found: Any = self._access(request.native)
        if isawaitable(found):
            found = await (found if finish is None else finish(found))
        if found is not None and not isinstance(found, Access):
            raise TypeError(f"access= must return an Access or None, got {type(found).__name__}")
        return found

    async def _admit(self, request: Request, finish: Finish | None) -> Admitted | Response:
        access = await self.who(request, finish)
        if access is None:
            return problem(request, 403, "No access", "You may not see this page." if self._access else CLOSED)
        if not request.path:
            return redirect(request.url("/"))
        if request.path.startswith("/static/"):
            return asset_response(request.path.removeprefix("/static/")) or _missing(request)
        if request.path == "/events" and request.updates == "events":
            return Response(headers=[("content-type", "text/event-stream")], events=True)
        route = find(request.path)
        if route is None:
            return _missing(request)
        if request.method not in ("GET", "HEAD", "POST") or (request.method == "POST" and not route.changes):
            return problem(request, 405, "This page cannot be used so", f"It does not know {request.method}.")
        if route.changes and not access.operates:
            return problem(request, 403, "You may only look", "Changing something needs the role operator.")
        return Admitted(access, route)

    async def _respond(self, request: Request, admitted: Admitted) -> Response:
        access, route = admitted.access, admitted.route
        if request.method == "POST" and not csrf.is_ours(request, access, self.site.secret):
            return problem(
                request,
                403,
                "This form cannot be used",
                "It was not sent by a page of this dashboard, or the page is older than a day. Open the page again.",
            )
        visit = Visit(site=self.site, request=request, access=access, client=self.client())
        try:
            return await route.view(visit, **route.values)
        except (ChainNotFound, ScheduleNotFound, IdNotFound) as error:
            return visit.page("problem.html", "Not found", status=404, text=str(error))
        except SchemaMissing as error:
            return visit.page("problem.html", "The tables are missing", status=503, text=str(error))
        except StorageError as error:
            again = request.method != "POST" and not route.changes
            title = "The database does not answer"
            return visit.page("problem.html", title, status=503, live=again, trouble=TROUBLE, text=str(error))
        except QueuertError as error:
            status = 409 if isinstance(error, ChainError) else 400
            return visit.page("problem.html", "This is not possible", status=status, text=str(error))


def problem(request: Request, status: int, title: str, text: str) -> Response:
    """A page for those who may not see any other page."""
    body = render("bare.html", {"title": title, "text": text, "request": request})
    return Response(status=status, headers=[("content-type", "text/html; charset=utf-8")], body=body.encode())


def too_large() -> Response:
    """For a form with more bytes than its page needs."""
    return with_headers(Response(status=413, body=b"the form is too large\n"))


def _failed(request: Request) -> Response:
    logger.exception("%s %s failed", request.method, request.path)
    return problem(request, 500, "Something went wrong here", "The log of the server has the details.")


def with_headers(response: Response) -> Response:
    """With those that every answer has."""
    given = {name for name, _ in response.headers}
    more = [("cache-control", "no-store")] if "cache-control" not in given else []
    return replace(response, headers=[*response.headers, *HEADERS, *more])


def _missing(request: Request) -> Response:
    return problem(request, 404, "Not found", "There is no such page.")
