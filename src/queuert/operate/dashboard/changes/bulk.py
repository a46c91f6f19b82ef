"""Changing all chains that match a filter, after its plan was shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from queuert.errors import InvalidArgument, QueuertError
from queuert.features.bulk.jobs import BulkAction
from queuert.jobs.filter import Filter
from queuert.operate.changes import BY_NAME
from queuert.operate.dashboard.changes.confirming import Confirmation, Option, confirmed, reason_of
from queuert.operate.dashboard.messages import Response, redirect
from queuert.operate.dashboard.site import Visit
from queuert.operate.filters import read_filter

WORDS = {
    "retry": "Retry all that match",
    "cancel": "Cancel all that match",
    "trigger": "Make all that match due now",
    "delete": "Delete all that match",
    "set_priority": "Set the priority of all that match",
}


async def view(visit: Visit, action: str) -> Response:
    """The filter is given as text, or as the ids of chosen chains."""
    chosen = list(visit.request.many("chain"))
    text = str(Filter(chain=chosen)) if chosen else visit.request.one("where").strip()
    change = BY_NAME.get(action)
    cascade = bool(visit.request.one("cascade"))
    where = await read_filter(visit.client, text.split())
    plan = await visit.client.plan(cast("BulkAction", action), where, cascade=cascade)
    question = Confirmation(
        title=WORDS[action],
        text="Workers do this, a page at a time. Only chains that match now are changed, each of them once. You can "
        "watch it, and cancel it, among the operations.",
        button=f"{WORDS[action].partition(' ')[0]} {plan.counted}",
        back=visit.request.url("/chains", where=text),
        hidden={"where": text},
        options=_options(visit, action, None if change is None else change.cascade),
        dangerous=action in ("cancel", "delete"),
    )
    shown: dict[str, Any] = {"template": "bulk.html", "plan": plan, "where": text, "cascade": cascade}
    # The form of the list sends the chosen chains by POST, too: there are too many for an address.
    if not confirmed(visit) or not visit.request.one("sure"):
        return question.page(visit, **shown)
    try:
        options: dict[str, Any] = {"by": visit.access.name, "reason": reason_of(visit), "per_second": _rate(visit)}
        if change is not None and change.cascade is not None:
            options["cascade"] = cascade
        more = [_priority(visit)] if action == "set_priority" else []
        async with visit.client.transaction() as tx:
            await getattr(visit.client, f"bulk_{action}")(tx, where, *more, **options)
    except QueuertError as error:
        return question.page(visit, error=str(error), **shown)
    return redirect(visit.request.url("/operations", done="started"))


def _options(visit: Visit, action: str, cascade: str | None) -> Sequence[Option]:
    one = visit.request.one
    found: list[Option] = []
    if action == "set_priority":
        found.append(
            Option(
                name="priority",
                label="Priority: the lowest number runs first",
                placeholder="100",
                value=one("priority"),
                needed=True,
            )
        )
    if cascade is not None:
        found.append(Option(name="cascade", label=cascade.capitalize(), value=one("cascade")))
    found.append(
        Option(
            name="per_second",
            label="At most this many per second",
            placeholder="as many as possible",
            value=one("per_second"),
        )
    )
    return found


def _rate(visit: Visit) -> float | None:
    text = visit.request.one("per_second").strip()
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidArgument(f"{text!r} is not a number of chains in a second") from None


def _priority(visit: Visit) -> int:
    text = visit.request.one("priority").strip()
    try:
        return int(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} is not a priority: it is a whole number, and 100 is usual") from None
