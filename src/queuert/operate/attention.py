"""What a person should look at: decided once, for the page and the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from queuert.base.own_types import is_own
from queuert.base.times import length_of
from queuert.features.schedules.schedule import Schedule
from queuert.jobs.filter import Filter
from queuert.operate.counts import BOUND, Count, total
from queuert.records.model import TypeStats
from queuert.records.pauses import Pause
from queuert.records.workers import WorkerInfo

LATE = 60.0
"""Seconds that a job may be ready before that is something to look at."""
EVERYTHING = sys.maxsize
"""More than the jobs of any type."""
SCHEDULES = 200
"""Schedules that are looked at."""


@dataclass(frozen=True, kw_only=True)
class Attention:
    """Something to look at, and where."""

    level: Literal["bad", "warn"]
    text: str
    hint: str
    """What to do there, in a few words."""
    where: Literal["chains", "workers", "queues", "schedule"]
    subject: str = ""
    """The filter of the chains, or the name of the schedule."""
    jobs: int = 0
    """How many jobs it concerns, if that is known."""


def attention(
    stats: Sequence[TypeStats],
    workers: Sequence[WorkerInfo],
    pauses: Sequence[Pause],
    schedules: Sequence[Schedule],
    now: datetime,
) -> list[Attention]:
    """What is bad comes first, and of that what concerns most jobs. `stats` are counted up to one
    more than `BOUND`.
    """
    own = [each for each in stats if not is_own(each.job_type)]
    alive = [worker for worker in workers if worker.state == "alive"]
    found = [
        *(_waiting(own, alive) if alive else _nobody(own)),
        *_failed(own),
        *_workers(workers, now),
        *(
            Attention(
                level="warn",
                text=f"{pause.target} is paused{f': {pause.reason}' if pause.reason else ''}",
                hint="resume",
                where="queues",
            )
            for pause in pauses
        ),
        *(
            Attention(
                level="bad",
                text=f"schedule {each.name} cannot fire",
                hint="see why",
                where="schedule",
                subject=each.name,
            )
            for each in schedules
            if each.status == "failing"
        ),
    ]
    return sorted(found, key=lambda each: (each.level != "bad", -each.jobs))


def _nobody(stats: Sequence[TypeStats]) -> Iterator[Attention]:
    """One line instead of one for each type."""
    waiting = total(Count.up_to(BOUND, each.pending) for each in stats if each.oldest_ready_age is not None)
    if waiting.number:
        jobs = "job waits" if waiting.number == 1 else "jobs wait"
        yield Attention(
            level="bad",
            text=f"no worker is alive, and {waiting} {jobs}",
            hint="start a worker",
            where="workers",
            jobs=EVERYTHING,
        )


def _failed(stats: Sequence[TypeStats]) -> Iterator[Attention]:
    for each in stats:
        if each.failed:
            yield Attention(
                level="bad",
                text=f"{Count.up_to(BOUND, each.failed)} {each.job_type} failed",
                hint="see why, then retry",
                where="chains",
                subject=str(Filter(status="failed", type=each.job_type)),
                jobs=each.failed,
            )


def _waiting(stats: Sequence[TypeStats], alive: Sequence[WorkerInfo]) -> Iterator[Attention]:
    handled = {name for worker in alive for name in worker.job_types}
    for each in stats:
        oldest, where = each.oldest_ready_age, str(Filter(status="pending", type=each.job_type))
        if oldest is None:
            continue
        if each.pending and each.job_type not in handled:
            yield Attention(
                level="bad",
                text=f"no worker that is alive has a handler for {each.job_type}",
                hint=f"{Count.up_to(BOUND, each.pending)} waiting",
                where="chains",
                subject=where,
                jobs=each.pending,
            )
        elif oldest > LATE:
            yield Attention(
                level="warn",
                text=f"{each.job_type} has been ready for {length_of(oldest)}",
                hint="see why it waits",
                where="chains",
                subject=where,
                jobs=each.pending,
            )


def _workers(workers: Sequence[WorkerInfo], now: datetime) -> Iterator[Attention]:
    for worker in workers:
        if worker.state != "alive":
            seen = length_of(max(0.0, (now - worker.seen_at).total_seconds()))
            yield Attention(
                level="warn",
                text=f"worker {worker.host or worker.id} is {worker.state}, last seen {seen} ago",
                hint="look at the workers",
                where="workers",
            )
