"""What all pages of one dashboard share, and what one visit to a page is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from queuert.client.client import Client
from queuert.engine.sessions import Sessions
from queuert.operate.dashboard import csrf
from queuert.operate.dashboard.access import Access
from queuert.operate.dashboard.drawing.hiding import Hiding
from queuert.operate.dashboard.messages import Request, Response
from queuert.operate.dashboard.rendering import render


@dataclass(frozen=True)
class Site:
    """The settings of a dashboard."""

    title: str
    hiding: Hiding
    secret: bytes | None


@dataclass(frozen=True, kw_only=True)
class Visit:
    """One request of a person who may see the page."""

    site: Site
    request: Request
    access: Access
    client: Client[Any]
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def sessions(self) -> Sessions[Any]:
        """To run programs that the client has no method for."""
        return self.client.sessions

    @property
    def token(self) -> str:
        """For forms."""
        if self.request.framework_token is not None:
            return self.request.framework_token
        return "" if self.site.secret is None else csrf.make_token(self.site.secret, self.access)

    @property
    def token_field(self) -> str:
        return csrf.FIELD if self.request.framework_token is None else "csrfmiddlewaretoken"

    def here_without(self, *names: str, **more: str) -> str:
        """The address of this page, without some values of its query, and with others."""
        kept = {name: values[0] for name, values in self.request.query.items() if name not in (*names, "done")}
        return self.request.url(self.request.path, **{**kept, **more})

    def page(
        self,
        template: str,
        title: str,
        *,
        status: int = 200,
        live: bool = False,
        trouble: str = "",
        scripts: Sequence[str] = (),
        **context: Any,
    ) -> Response:
        """A page of the dashboard. `live`: it updates itself. `trouble`: why it could not be read,
        so that it tries again.
        """
        body = render(
            template,
            {
                "visit": self,
                "request": self.request,
                "url": self.request.url,
                "now": self.now,
                "page_title": title,
                "live": live,
                "trouble": trouble,
                "scripts": scripts,
                "done": self.request.one("done"),
                "here": self.here_without(),
                "here_without": self.here_without,
                "section": f"/{self.request.path.split('/')[1]}",
                **context,
            },
        )
        return Response(status=status, headers=[("content-type", "text/html; charset=utf-8")], body=body.encode())
