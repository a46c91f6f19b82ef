"""Pausing, resuming, triggering or deleting a schedule."""

from __future__ import annotations

from typing import Any

from queuert.errors import QueuertError, ScheduleNotFound
from queuert.operate.dashboard.changes.confirming import Confirmation, Option, confirmed, reason_of
from queuert.operate.dashboard.messages import Response, redirect
from queuert.operate.dashboard.site import Visit
from queuert.operate.pauses import end_of_pause

EFFECTS = {
    "pause": "Its ticks do not fire, and are not caught up with. What it has started goes on.",
    "resume": "It fires from now on.",
    "trigger": "It fires once now, besides its ticks.",
    "delete": "The schedule is deleted. What it has started goes on.",
}
DONE = {"pause": "paused", "resume": "resumed", "trigger": "triggered", "delete": "deleted"}


async def view(visit: Visit, action: str) -> Response:
    one = visit.request.one
    name = one("name")
    schedule = await visit.client.get_schedule(name) if name else None
    if schedule is None:
        raise ScheduleNotFound(name)
    back = visit.request.url("/schedule", name=name)
    until = Option(
        name="until",
        label="Until (it can also be resumed before)",
        placeholder="2h, or 2026-11-17T12:00Z; empty: until it is resumed",
        value=one("until"),
    )
    comes_back = " Workers declare it, so it comes back within a minute: pause it instead."
    question = Confirmation(
        title=f"{action.capitalize()}: {name}",
        text=EFFECTS[action] + comes_back * (action == "delete" and schedule.declared),
        button=action.capitalize(),
        back=back,
        hidden={"name": name},
        options=(until,) if action == "pause" else (),
        dangerous=action == "delete",
    )
    if not confirmed(visit):
        return question.page(visit)
    try:
        who: dict[str, Any] = {"by": visit.access.name, "reason": reason_of(visit)}
        if action == "pause" and one("until").strip():
            who["until"] = end_of_pause(one("until").strip())
        async with visit.client.transaction() as tx:
            await getattr(visit.client, f"{action}_schedule")(tx, name, **who)
    except QueuertError as error:
        return question.page(visit, error=str(error))
    after = visit.request.url("/schedules", done="deleted") if action == "delete" else None
    return redirect(after or visit.request.url("/schedule", name=name, done=DONE[action]))
