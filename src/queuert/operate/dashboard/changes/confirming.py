"""The page that asks before something is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from queuert.base.arguments import MAX_REASON_LENGTH
from queuert.errors import InvalidArgument
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit


@dataclass(frozen=True, kw_only=True)
class Option:
    """A field of the form besides the reason. A checkbox, unless it has a placeholder."""

    name: str
    label: str
    placeholder: str | None = None
    value: str = ""
    needed: bool = False


@dataclass(frozen=True, kw_only=True)
class Confirmation:
    """What is asked, and what it says about it."""

    title: str
    text: str
    button: str
    back: str
    hidden: Mapping[str, str] = field(default_factory=dict[str, str])
    """Values that come back with the form."""
    options: Sequence[Option] = ()
    needs_reason: bool = True
    dangerous: bool = False

    def page(
        self,
        visit: Visit,
        *,
        error: str | None = None,
        template: str = "confirm.html",
        status: int | None = None,
        **context: Any,
    ) -> Response:
        """With the error, if what was asked for could not be done."""
        return visit.page(
            template,
            self.title,
            status=status or (200 if error is None else 409),
            question=self,
            error=error,
            reason=visit.request.one("reason"),
            longest_reason=MAX_REASON_LENGTH,
            section=f"/{_path(self.back, visit.request.url('')).split('/')[1]}",
            **context,
        )


def _path(back: str, mount: str) -> str:
    return back.removeprefix(mount).partition("?")[0]


def confirmed(visit: Visit) -> bool:
    """Whether the form was sent."""
    return visit.request.method == "POST"


def reason_of(visit: Visit) -> str:
    """Why, in the words of the one who does it. It is needed: others will read the audit."""
    reason = visit.request.one("reason").strip()
    if not reason:
        raise InvalidArgument("say why: the reason is kept in the audit")
    return reason
