"""Pausing and resuming a job type, a queue, or everything."""

from __future__ import annotations

from queuert.errors import QueuertError
from queuert.operate.dashboard.changes.confirming import Confirmation, Option, confirmed, reason_of
from queuert.operate.dashboard.messages import Response, redirect
from queuert.operate.dashboard.site import Visit
from queuert.operate.pauses import end_of_pause, target_of, with_versions


async def view(visit: Visit, action: str) -> Response:
    one = visit.request.one
    target = target_of(one("target"))
    pausing = action == "pause"
    options = (
        Option(
            name="until",
            label="Until (it can also be resumed before)",
            placeholder="2h, or 2026-11-17T12:00Z; empty: until it is resumed",
            value=one("until"),
        ),
        Option(name="cancel_running", label="Also stop jobs that are running, and put them back"),
    )
    question = Confirmation(
        title=f"{action.capitalize()}: {target}",
        text=(
            "No worker takes new jobs of it, from now on. Jobs can still be started: they wait."
            if pausing
            else "Workers take its jobs again."
        ),
        button=action.capitalize(),
        back=visit.request.url("/queues"),
        hidden={"target": one("target")},
        options=(options[:1] if target.scope == "key" else options) if pausing else (),
    )
    if not confirmed(visit):
        return question.page(visit)
    try:
        reason, by = reason_of(visit), visit.access.name
        until = end_of_pause(one("until").strip()) if one("until").strip() else None
        targets = await with_versions(visit.client, [target], paused=not pausing)
        async with visit.client.transaction() as tx:
            for each in targets:
                if pausing:
                    stop = bool(one("cancel_running"))
                    await visit.client.pause(tx, each, until=until, reason=reason, by=by, cancel_running=stop)
                else:
                    await visit.client.resume(tx, each, reason=reason, by=by)
    except QueuertError as error:
        return question.page(visit, error=str(error))
    return redirect(visit.request.url("/queues", done="paused" if pausing else "resumed"))
