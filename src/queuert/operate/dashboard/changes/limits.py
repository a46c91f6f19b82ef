"""Changing a limit, for one key or for all keys, and undoing that."""

from __future__ import annotations

from typing import Any

from queuert.errors import InvalidArgument, QueuertError
from queuert.operate.dashboard.changes.confirming import Confirmation, Option, confirmed, reason_of
from queuert.operate.dashboard.messages import Response, redirect
from queuert.operate.dashboard.site import Visit
from queuert.operate.limits import limit_change
from queuert.records.limits import SEPARATOR, split_lane

EFFECTS = {
    "set": "Workers obey it at once. Jobs that are running go on, even if there are more of them than it allows. "
    "It stays until it is undone, even after restarts and releases. What you leave empty stays as it is.",
    "clear": "What was set by hand is undone: what the code declares applies again.",
}


async def view(visit: Visit, action: str) -> Response:
    one = visit.request.one
    lane = one("lane")
    name, fixed_key = split_lane(lane) if SEPARATOR in lane else (lane, None)
    if not name:
        raise InvalidArgument("which limit? The address does not name one")
    setting = action == "set"
    about = f"{name}, all keys" if fixed_key is None else f"{name}, key {fixed_key}"
    question = Confirmation(
        title=f"{'Change limit' if setting else 'Undo the change of'}: {about}",
        text=EFFECTS[action],
        button="Change it" if setting else "Undo it",
        back=visit.request.url("/queues"),
        hidden={"lane": lane},
        options=_options(visit, for_all=fixed_key is None) if setting else (),
    )
    if not confirmed(visit):
        return question.page(visit)
    key = fixed_key if fixed_key is not None or not setting else one("key").strip() or None
    try:
        about_it: dict[str, Any] = {"key": key, "by": visit.access.name, "reason": reason_of(visit)}
        fields = {field: one(field).strip() for field in ("concurrency", "rate", "weight")}
        async with visit.client.transaction() as tx:
            if setting:
                await visit.client.set_limit(tx, name, **limit_change(**fields), **about_it)
            elif not await visit.client.clear_limit(tx, name, **about_it):
                raise InvalidArgument("nothing was set: it has been undone already")
    except QueuertError as error:
        return question.page(visit, error=str(error))
    return redirect(visit.request.url("/queues", done="limited" if setting else "unlimited"))


def _options(visit: Visit, *, for_all: bool) -> tuple[Option, ...]:
    fields = (
        ("key", "Only for this key", "empty: for all keys that have nothing of their own"),
        ("concurrency", "How many run at once", "4; none: no limit"),
        ("rate", "How many begin in how many seconds", "100/10; 100/10/smooth: evenly; none: no limit"),
        ("weight", "How many turns it gets beside others", "1 is usual"),
    )
    return tuple(
        Option(name=name, label=label, placeholder=hint, value=visit.request.one(name))
        for name, label, hint in fields
        if for_all or name != "key"
    )
