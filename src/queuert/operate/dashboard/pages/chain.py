"""One chain: its picture, now or at an earlier moment, why it does not go on, and what can be
done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from queuert.base.own_types import is_own
from queuert.base.statuses import REPAIRABLE
from queuert.jobs.record import JobRecord
from queuert.operate.changes import CHANGES
from queuert.operate.dashboard.drawing import timeline
from queuert.operate.dashboard.drawing.graph import Beside, Step, draw
from queuert.operate.dashboard.messages import Response
from queuert.operate.dashboard.rendering import between, short_id
from queuert.operate.dashboard.site import Visit
from queuert.operate.ids import find_job
from queuert.operate.looking import look_at, most_urgent_first, totals
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.model import BlockerRow

JOBS = 40
"""Jobs of the chain that are read, the latest ones."""
DEPENDENTS = 20
WITH_ATTEMPTS = 10
"""Jobs whose failed attempts are read."""


async def view(visit: Visit, id: str) -> Response:
    client = visit.client
    look = await look_at(client, (await find_job(client, id)).chain_id, JOBS)
    chain, jobs = look.chain, list(reversed(look.page.items))
    blockers = await _blockers(visit, jobs)
    dependents = (await client.list_blocked_jobs(chain, limit=DEPENDENTS)).items
    attempts = await _attempts(visit, jobs)
    schedule = None if chain.tick is None else await client.schedule_of(chain)
    current = jobs[-1]
    redactor = visit.site.hiding.redactor(current.job_type, current.input, current.last_error)
    happened = timeline.moments(jobs, attempts)
    at = timeline.read_moment(visit.request.one("at"))
    steps = _steps(visit, jobs, blockers, attempts, at)
    beside = most_urgent_first((_dependent(visit, each, at) for each in dependents), lambda each: each.status)
    place = len(happened) - 1 if at is None else max(0, sum(moment.at <= at for moment in happened) - 1)
    return visit.page(
        "chain.html",
        f"{chain.status}: {chain.chain_type}",
        live=at is None,
        chain=chain,
        current=current,
        jobs=jobs,
        earlier=look.page.next_cursor is not None,
        pictures=[draw(steps, beside, "right"), draw(steps, beside, "down")],
        dependents=dependents,
        attempts=attempts,
        schedule=schedule,
        why=look.why,
        waited=[]
        if at
        else [
            (job, len(blockers[job.id]), totals(row.status for row in blockers[job.id]))
            for job in jobs
            if len(blockers[job.id]) > 1
        ],
        redactor=redactor,
        moments=happened,
        place=place,
        at=at,
        changes=[change for change in CHANGES if await change.allows(client, chain)],
        repairable=chain.status in REPAIRABLE and not is_own(current.job_type),
        audit=(await client.list_audit(chain, limit=5)).items,
    )


async def _blockers(visit: Visit, jobs: Sequence[JobRecord[Any]]) -> Mapping[str, Sequence[BlockerRow]]:
    """By job, in one statement."""
    sessions = visit.sessions
    found = await sessions.run(sessions.engine.state.job_blockers([job.id for job in jobs]))
    return {job.id: rows for job, rows in zip(jobs, found, strict=True)}


async def _attempts(visit: Visit, jobs: Sequence[JobRecord[Any]]) -> dict[str, Sequence[FailedAttempt]]:
    """Only of those that were tried more than once, or have failed: others have none."""
    tried = [job for job in jobs if job.attempt_number > 1 or job.last_error is not None][-WITH_ATTEMPTS:]
    return {job.id: await visit.client.attempts(job) for job in tried}


def _steps(
    visit: Visit,
    jobs: Sequence[JobRecord[Any]],
    blockers: Mapping[str, Sequence[BlockerRow]],
    attempts: Mapping[str, Sequence[FailedAttempt]],
    at: datetime | None,
) -> list[Step]:
    steps: list[Step] = []
    group: list[JobRecord[Any]] = []
    for job, following in zip(jobs, [*jobs[1:], None], strict=True):
        group.append(job)
        goes_on = following is not None and (at is None or following.created_at <= at)
        if following is not None and goes_on and following.job_type == job.job_type:
            continue  # a loop: shown as one box, with its latest job
        status = job.status if at is None else _status(job, blockers, attempts, at)
        waited_for = [_blocker(visit, row, at) for each in group for row in blockers[each.id]]
        detail = _detail(job, status, at or visit.now)
        href = visit.request.url(f"/job/{job.id}")
        waited_for = most_urgent_first(waited_for, lambda each: each.status)
        steps.append(Step(job.job_type, status, detail, href, len(group), waited_for))
        group = []
    return steps


def _status(
    job: JobRecord[Any],
    blockers: Mapping[str, Sequence[BlockerRow]],
    attempts: Mapping[str, Sequence[FailedAttempt]],
    at: datetime,
) -> str:
    return timeline.status_at(job, attempts.get(job.id, ()), at, waited=bool(blockers[job.id]))


def _detail(job: JobRecord[Any], status: str, now: datetime) -> str:
    if status == timeline.NOT_YET:
        return ""
    if status == "running" and job.last_attempt_at is not None and job.last_attempt_at <= now:
        return f"for {between(job.last_attempt_at, now)}"
    if job.completed_at is not None and job.completed_at <= now:
        started = job.last_attempt_at or job.created_at
        again = f", attempt {job.attempt_number}" if job.attempt_number > 1 else ""
        return f"{between(started, job.completed_at)}{again}"
    return f"attempt {job.attempt_number + 1} is next" if job.attempt_number else f"for {between(job.created_at, now)}"


def _blocker(visit: Visit, row: BlockerRow, at: datetime | None) -> Beside:
    # When a blocker has ended is not known here, so its status is left out of the past.
    status = row.status if at is None else ""
    return Beside(row.chain_type, status, short_id(row.chain_id), visit.request.url(f"/chain/{row.chain_id}"))


def _dependent(visit: Visit, job: JobRecord[Any], at: datetime | None) -> Beside:
    status = job.status if at is None else timeline.status_at(job, (), at, waited=True)
    return Beside(job.job_type, status, short_id(job.chain_id), visit.request.url(f"/chain/{job.chain_id}"))
