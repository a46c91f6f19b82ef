"""One job: what it was given, what it returned, what went wrong, and why it does not run."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from queuert.base.own_types import is_own
from queuert.base.statuses import REPAIRABLE
from queuert.errors import QueuertError
from queuert.jobs.record import JobRecord
from queuert.operate.changes import CHANGES
from queuert.operate.dashboard.drawing.json_tree import is_cut, plain, tree
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.site import Visit
from queuert.operate.ids import find_job
from queuert.operate.looking import look_at, most_urgent_first, totals

NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9-]")
"""Of a file: ids of the user's own kind may contain anything."""


async def view(visit: Visit, id: str) -> Response:
    client = visit.client
    job = await find_job(client, id)
    look = await look_at(client, job.chain_id, 1)
    chain, current = look.chain, look.page.items[0]
    is_current = current.id == job.id
    job = current if is_current else await find_job(client, id)
    attempts = await client.attempts(job) if job.attempt_number > 1 or job.last_error is not None else []
    blockers = most_urgent_first(await client.get_blockers(job) or [], lambda each: each.status)
    values = {"input": job.input, "output": _output(job), "error": job.last_error}
    redactor = visit.site.hiding.redactor(job.job_type, *values.values())
    shown = {name: None if value is None else tree(redactor.value(value)) for name, value in values.items()}
    return visit.page(
        "job.html",
        f"{job.status}: {job.job_type}",
        live=True,
        job=job,
        chain=chain,
        is_current=is_current,
        attempts=attempts,
        blockers=blockers,
        totals=totals(each.status for each in blockers),
        why=look.why if is_current else None,
        input=shown["input"],
        output=shown["output"],
        has_output=job.status == "completed" and job.continued_to is None,
        error=job.last_error,
        is_cut=is_cut,
        redactor=redactor,
        changes=[change for change in CHANGES if is_current and await change.allows(client, chain)],
        repairable=is_current and job.status in REPAIRABLE and not is_own(job.job_type),
    )


async def whole(visit: Visit, id: str, part: str) -> Response:
    """A value as a file: what the page shows only the beginning of."""
    job = await find_job(visit.client, id)
    value = {"input": job.input, "output": _output(job), "error": job.last_error}[part]
    redactor = visit.site.hiding.redactor(job.job_type, job.input, value)
    body = msgspec.json.format(msgspec.json.encode(redactor.value(value)), indent=2)
    name = f'attachment; filename="{part}-{NOT_IN_A_NAME.sub("_", job.id[-8:])}.json"'
    headers = [("content-type", "application/json"), ("content-disposition", name)]
    return Response(headers=headers, body=redactor.text(body.decode()).encode() if part == "error" else body)


def _output(job: JobRecord[Any]) -> Any:
    """As plain JSON. What no longer fits its class is a text that says so."""
    try:
        return plain(job.output)
    except QueuertError as error:
        return f"it cannot be read: {error}"
