"""What a chain looked like at any moment: everything needed for that is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from queuert.jobs.record import JobRecord
from queuert.records.failed_attempts import FailedAttempt

NOT_YET = "not yet"

Attempts = Mapping[str, Sequence[FailedAttempt]]
"""The failed attempts of jobs, by id."""


@dataclass(frozen=True)
class Moment:
    """Something that happened to a chain."""

    at: datetime
    text: str
    job_id: str


def moments(jobs: Iterable[JobRecord[Any]], attempts: Attempts) -> list[Moment]:
    """All that is known to have happened, the oldest first."""
    found: list[Moment] = []
    for job in jobs:
        name = job.job_type
        found.append(Moment(job.created_at, f"{name} created", job.id))
        tries = attempts.get(job.id, ())
        for each in tries:
            if each.begun_at is not None:
                found.append(Moment(each.begun_at, f"{name}: attempt {each.number} began", job.id))
            found.append(Moment(each.ended_at, f"{name}: attempt {each.number} {each.outcome}", job.id))
        if job.last_attempt_at is not None and all(each.begun_at != job.last_attempt_at for each in tries):
            found.append(Moment(job.last_attempt_at, f"{name}: attempt {job.attempt_number} began", job.id))
        if job.completed_at is not None:
            found.append(Moment(job.completed_at, f"{name} {job.status}", job.id))
    return sorted(found, key=lambda moment: moment.at)


def status_at(job: JobRecord[Any], tries: Sequence[FailedAttempt], at: datetime, *, waited: bool) -> str:
    """The status of a job at a moment, as far as that can be known. `waited`: it has blockers."""
    if at < job.created_at:
        return NOT_YET
    if job.completed_at is not None and at >= job.completed_at:
        return job.status
    if any(each.begun_at is not None and each.begun_at <= at < each.ended_at for each in tries):
        return "running"
    last = job.last_attempt_at
    if last is not None and last <= at and all(each.begun_at != last for each in tries):
        return "running"
    begins = [each.begun_at for each in tries if each.begun_at is not None] + [last for last in [last] if last]
    before_first = not begins or at < min(begins)
    # When it was unblocked is stored as the time when it became due, until an attempt fails.
    still = job.status == "blocked" or (bool(begins) and at < job.scheduled_at)
    return "blocked" if waited and before_first and still else "pending"


def read_moment(text: str) -> datetime | None:
    """A moment of an address. None: it is not one."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
