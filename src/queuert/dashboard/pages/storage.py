"""Storage: how long ended chains are kept, how far deleting them is, and what the doctor finds."""

from __future__ import annotations

from queuert.dashboard.changes.confirming import Confirmation, confirmed
from queuert.dashboard.messages import Response, redirect
from queuert.dashboard.site import Visit
from queuert.ids import time_of
from queuert.retention import NOTED_COUNTED


async def view(visit: Visit) -> Response:
    """The doctor looks only if a person asks: that takes a moment."""
    retention = await visit.client.retention()
    sessions = visit.sessions
    around = await sessions.run(sessions.engine.state.surroundings(full=False))
    asked = visit.request.one("doctor") == "1"
    diagnosis = await visit.client.doctor() if asked else None
    bad = 0 if diagnosis is None else len(diagnosis.findings)
    return visit.page(
        "storage.html",
        f"{bad} findings: storage" if bad else "Storage",
        live=not asked,
        retention=retention,
        around=around,
        diagnosis=diagnosis,
        noted_most=NOTED_COUNTED,
        time_of=time_of,
    )


async def prune(visit: Visit) -> Response:
    """Delete now what has been kept long enough. Workers do it by themselves."""
    question = Confirmation(
        title="Delete what has been kept long enough",
        text="Ended chains whose time is over are deleted now, by the policies below. Workers also do this by "
        "themselves, a little at a time.",
        button="Delete them",
        back=visit.request.url("/storage"),
        needs_reason=False,
        dangerous=True,
    )
    if not confirmed(visit):
        return question.page(visit)
    pruned = await visit.client.prune()
    return redirect(visit.request.url("/storage", done="busy" if pruned.busy else "pruned"))
