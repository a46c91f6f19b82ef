"""Queues and job types: what runs in them, their limits, and what is paused."""

from __future__ import annotations

from queuert.base.own_types import is_own
from queuert.operate.counts import BOUND
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit
from queuert.operate.limits import key_pauses, key_target, not_listed, weight_text
from queuert.operate.pauses import target_text
from queuert.operate.queues import queue_lines
from queuert.records.limits import COUNTED, lane_of

LIMITS = 50
"""Limits and keys on a page."""


async def view(visit: Visit) -> Response:
    client = visit.client
    workers = [worker for worker in await client.list_workers() if worker.state != "dead"]
    stats = {each.job_type: each for each in await client.stats(limit=BOUND + 1) if not is_own(each.job_type)}
    pauses = await client.list_pauses()
    queues = queue_lines(workers, stats, {pause.target: pause for pause in pauses})
    cursor = visit.request.one("cursor") or None
    limits = await client.list_limits(limit=LIMITS, cursor=cursor)
    paused_keys = key_pauses(pauses)
    paused = len(pauses)
    return visit.page(
        "queues.html",
        f"{paused} paused: queues" if paused else "Queues",
        live=True,
        queues=queues,
        pauses=pauses,
        limits=limits.items,
        counted=COUNTED,
        paused_keys=paused_keys,
        paused_elsewhere=not_listed(paused_keys, limits.items) if cursor is None else [],
        key_text=_key_text,
        lane_of=lane_of,
        weight_text=weight_text,
        cursor=limits.next_cursor,
        first=cursor is None,
        everything=next((each for each in pauses if each.target.scope == "everything"), None),
        caps=sorted({worker.cluster_cap for worker in workers if worker.cluster_cap is not None}),
    )


def _key_text(name: str, key: str) -> str:
    """What the address of a question about one key names."""
    return target_text(key_target(name, key))
