"""Retrying a chain with a corrected input."""

from __future__ import annotations

from typing import Any

import msgspec

from queuert.errors import ChainNotFound, InvalidArgument, QueuertError
from queuert.jobs.registry import Registry
from queuert.operate.dashboard.changes.confirming import Confirmation, confirmed, reason_of
from queuert.operate.dashboard.drawing.hiding import Redactor
from queuert.operate.dashboard.messages import LARGEST_EDITED, Response, redirect
from queuert.operate.dashboard.site import Visit
from queuert.operate.repairing import carry_out_repair, plan_repair


async def view(visit: Visit, id: str) -> Response:
    chain = await visit.client.get_chain(id)
    if chain is None:
        raise ChainNotFound(id)
    job = await visit.client.get_job(chain.current_job_id or id)
    if job is None:
        raise ChainNotFound(id)
    redactor = visit.site.hiding.redactor(job.job_type)
    stored = job.input
    typed = visit.request.one("input") or _pretty(redactor.value(stored))
    jobs = _registry(visit, job.job_type)
    question = Confirmation(
        title=f"Edit and retry: {job.job_type}",
        text="The job gets new attempts with this input. "
        + (
            "It is checked with the job's class."
            if jobs is not None
            else "The class of the job is not known here, so only its form is checked."
        ),
        button="Retry with this input",
        back=visit.request.url(f"/chain/{chain.id}"),
    )
    if len(typed.encode()) > LARGEST_EDITED:
        error = "the input is too large to be edited here: `queuert retry --input` takes it from the command line"
        return question.page(visit, error=error, possible=False)
    if not confirmed(visit):
        return question.page(visit, template="repair.html", chain=chain, job=job, input=typed)
    try:
        given, reason = _restored(typed, stored, redactor), reason_of(visit)
        await plan_repair(visit.client, chain.id, given, jobs)
        await carry_out_repair(visit.client, chain.id, given, jobs, by=visit.access.name, reason=reason)
    except QueuertError as error:
        text = redactor.text(str(error))
        return question.page(visit, template="repair.html", error=text, chain=chain, job=job, input=typed)
    return redirect(visit.request.url(f"/chain/{chain.id}", done="retried"))


def _pretty(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _restored(typed: str, stored: Any, redactor: Redactor) -> str:
    """With the hidden values, where they were left as they are."""
    try:
        edited = msgspec.json.decode(typed)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(f"the input is not JSON: {error}") from None
    return msgspec.json.encode(redactor.restore(edited, stored)).decode()


def _registry(visit: Visit, job_type: str) -> Registry | None:
    """The client's classes, if the job's is among them."""
    jobs = visit.sessions.engine.jobs
    return jobs if jobs.by_name(job_type) is not None else None
