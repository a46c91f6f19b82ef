"""The workers: their slots, what runs in them and for how long, their releases, and the dead."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from queuert.jobs.record import JobRecord
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit

RUNNING = 200
"""Running jobs that are read, those created first."""
OF_ONE = 10
"""Jobs of one worker that are shown."""


async def view(visit: Visit) -> Response:
    workers = await visit.client.list_workers()
    page = await visit.client.list_jobs(status="running", limit=RUNNING)
    held: dict[str | None, list[JobRecord[Any]]] = defaultdict(list)
    for job in page.items:
        held[job.leased_by].append(job)
    for jobs in held.values():
        jobs.sort(key=lambda job: job.last_attempt_at or visit.now)
    dead = sum(worker.state == "dead" for worker in workers)
    return visit.page(
        "workers.html",
        f"{dead} dead: workers" if dead else "Workers",
        live=True,
        workers=sorted(workers, key=lambda worker: (worker.state != "alive", worker.host or "", worker.id)),
        held=held,
        of_one=OF_ONE,
        releases=sorted({worker.release for worker in workers if worker.release}),
        all_read=page.next_cursor is None,
    )
