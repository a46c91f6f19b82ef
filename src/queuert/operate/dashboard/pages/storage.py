"""Storage: how long ended chains are kept, how far deleting them is, and what the doctor finds."""

from __future__ import annotations

from queuert.base.ids import time_of
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit
from queuert.records.retention import NOTED_COUNTED


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
