"""Deleting now what has been kept long enough. Workers do it by themselves."""

from __future__ import annotations

from queuert.errors import InvalidArgument
from queuert.operate.dashboard.changes.confirming import Confirmation, confirmed, reason_of
from queuert.operate.dashboard.messages import Response, redirect
from queuert.operate.dashboard.site import Visit


async def view(visit: Visit) -> Response:
    question = Confirmation(
        title="Delete what has been kept long enough",
        text="Ended chains whose time is over are deleted now, by the policies on the page Storage. Workers also do "
        "this by themselves, a little at a time.",
        button="Delete them",
        back=visit.request.url("/storage"),
        dangerous=True,
    )
    if not confirmed(visit):
        return question.page(visit)
    try:
        pruned = await visit.client.prune(by=visit.access.name, reason=reason_of(visit))
    except InvalidArgument as error:
        return question.page(visit, error=str(error))
    return redirect(visit.request.url("/storage", done="busy" if pruned.busy else "pruned"))
