"""Requests and responses as the core sees them: plain records, whatever the server is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, quote, urlencode

Fields = Mapping[str, Sequence[str]]

LARGEST_FORM = 128 * 1024
"""Bytes of most forms: a reason, and the ids of the chains that were chosen on a page."""
LARGEST_EDITED = 256 * 1024
"""Bytes of an input that can be edited. Reading a form of a megabyte takes about 0.1 s."""
LARGEST_WITH_INPUT = 3 * LARGEST_EDITED + LARGEST_FORM
"""Bytes of the form that contains it: a form makes up to three of each."""
MOST_FIELDS = 2000
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a browser asks for. Names of headers are lower case."""

    method: str
    path: str
    """Below the mount. It begins with a slash, unless it is empty."""
    prefix: str = ""
    """Where the dashboard is mounted, without a slash at its end."""
    query: Fields = field(default_factory=dict[str, Sequence[str]])
    form: Fields = field(default_factory=dict[str, Sequence[str]])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    native: Any = None
    """The framework's own request, for `access`."""
    framework_token: str | None = None
    """The framework's own token against forged forms, which it has checked already."""
    updates: Literal["events", "polling"] = "polling"
    """How pages learn that something has changed."""

    def one(self, name: str, default: str = "") -> str:
        """A value of the query, or of the form."""
        values = self.form.get(name) or self.query.get(name)
        return values[0] if values else default

    def many(self, name: str) -> Sequence[str]:
        return self.form.get(name) or self.query.get(name) or ()

    def url(self, path: str, **query: str | None) -> str:
        """The address of a page of the dashboard. What is None or empty is left out."""
        given = {name.rstrip("_"): value for name, value in query.items() if value}
        return f"{quote(self.prefix)}{quote(path)}" + (f"?{urlencode(given)}" if given else "")


@dataclass(frozen=True, kw_only=True)
class Response:
    """What is sent back."""

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    events: bool = False
    """Then the body is a stream of events, which the door sends."""


def fields_of(text: str | bytes) -> Fields:
    """The fields of a query or a form. Text that is not UTF-8 is replaced."""
    decoded = text.decode("latin-1") if isinstance(text, bytes) else text
    try:
        return parse_qs(decoded, keep_blank_values=True, errors="replace", max_num_fields=MOST_FIELDS)
    except ValueError:
        return {}


def is_form(request: Request) -> bool:
    """Whether its body is a form that we can read."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return request.method == "POST" and kind == FORM


def length_of(request: Request) -> int:
    """Bytes of the body, as far as the headers tell."""
    length = request.headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdigit() and len(length) < 16 else 0


def redirect(url: str, *headers: tuple[str, str]) -> Response:
    return Response(status=303, headers=[("location", url), *headers])
