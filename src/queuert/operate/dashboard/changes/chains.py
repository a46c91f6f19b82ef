"""Retrying, cancelling, triggering or deleting one chain."""

from __future__ import annotations

from queuert.engine.operations.cascades import CancelCascade
from queuert.errors import ChainNotFound, InvalidArgument, QueuertError
from queuert.operate.changes import BY_NAME
from queuert.operate.dashboard.changes.confirming import Confirmation, Option, confirmed, reason_of
from queuert.operate.dashboard.messages import Response, redirect
from queuert.operate.dashboard.site import Visit

WORDS = {"retry": "Retry", "cancel": "Cancel", "trigger": "Make due now", "delete": "Delete"}
EFFECTS = {
    "retry": "The job that failed gets new attempts, with the input that it has.",
    "cancel": "The chain ends now. If its handler is running, it is told to stop.",
    "trigger": "The job no longer waits for its time. A worker takes it as soon as it can.",
    "delete": "The chain and all its jobs are deleted. This cannot be undone.",
}


async def view(visit: Visit, action: str, id: str) -> Response:
    change = BY_NAME[action]
    chain = await visit.client.get_chain(id)
    if chain is None:
        raise ChainNotFound(id)
    others = await change.cascaded(visit.client, [chain.id]) if change.cascade is not None else []
    options: list[Option] = []
    if change.cascade is not None and others:
        label = change.cascade.replace("these", "it").capitalize()
        options.append(Option(name="cascade", label=f"{label} ({len(others):,})"))
    below = await change.cascaded(visit.client, [chain.id], "blockers") if change.blockers is not None else []
    if change.blockers is not None and below:
        label = change.blockers.replace("these wait", "it waits").capitalize()
        options.append(Option(name="blockers", label=f"{label} ({len(below):,})"))
    question = Confirmation(
        title=f"{WORDS[action]}: {chain.chain_type}",
        text=EFFECTS[action],
        button=WORDS[action],
        back=visit.request.url(f"/chain/{chain.id}"),
        options=options,
        dangerous=action in ("cancel", "delete"),
    )
    if not await change.allows(visit.client, chain):
        error = f"the chain is {chain.status}, and this is for chains that are {change.needs}"
        return question.page(visit, error=error, chain=chain, others=others, possible=False)
    if not confirmed(visit):
        return question.page(visit, chain=chain, others=others)
    try:
        reason, cascade = reason_of(visit), _cascade(visit)
        async with visit.client.transaction() as tx:
            await change.carry_out(visit.client, tx, [chain.id], cascade=cascade, by=visit.access.name, reason=reason)
    except QueuertError as error:
        return question.page(visit, error=str(error), chain=chain, others=others)
    after = "/chains" if action == "delete" else f"/chain/{chain.id}"
    return redirect(visit.request.url(after, done=change.done))


def _cascade(visit: Visit) -> bool | CancelCascade:
    up, down = (bool(visit.request.one(name)) for name in ("cascade", "blockers"))
    if up and down:
        raise InvalidArgument("choose one of the two: the chains that wait for it, or those that it waits for")
    return "blockers" if down else up
