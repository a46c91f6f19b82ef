"""What the database knows about a job that is not running: the facts that `why` reasons about."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec

from queuert.base.statuses import Status
from queuert.records.model import ChainRow, JobRow
from queuert.records.pauses import Pause
from queuert.records.workers import LastHandled, WorkerRow

BLOCKERS_READ = 1000
"""Edges of the job that are looked at, at most."""
BLOCKERS_SHOWN = 20
AHEAD = 100
"""Due jobs of each type that are read, at most."""


class BlockingRow(msgspec.Struct, frozen=True):
    """A chain that the job waits for, with the status of its current job."""

    chain_id: str
    chain_type: str
    status: Status


class RunningGroup(msgspec.Struct, frozen=True):
    """Running jobs of one type, under one worker's name, claimed through one queue.

    `queue` is None if that is not stored.
    """

    type_name: str
    worker: str
    number: int
    oldest_id: str
    oldest_at: datetime
    queue: str | None = None


class DueJob(msgspec.Struct, frozen=True):
    """A pending job that is due."""

    type_name: str
    priority: int
    scheduled_at: datetime
    id: str


def concerned(workers: Iterable[WorkerRow], job: JobRow) -> tuple[list[WorkerRow], int]:
    """The workers that a `Circumstances` lists, and how many others are alive."""
    found: list[WorkerRow] = []
    others = 0
    for row in workers:
        if row.about is None or job.type_name in row.about.types or row.id == job.leased_by:
            found.append(row)
        else:
            others += row.state == "alive"
    return found, others


class Circumstances(msgspec.Struct, frozen=True, kw_only=True):
    """All of it is read in one snapshot."""

    now: datetime
    """By the database's clock."""
    chain: ChainRow
    blockers: list[BlockingRow]
    """Chains that are not completed, those that ended badly first. At most `BLOCKERS_SHOWN`, of the
    first `BLOCKERS_READ`."""
    workers: list[WorkerRow]
    """Those that have a handler for the type of the current job, that do not store their types, or
    that run it. `held` is not counted.
    """
    others_alive: int
    """How many other workers are alive."""
    running: list[RunningGroup]
    """All running jobs; empty unless the current job is due."""
    due: list[DueJob]
    """The first due jobs of each type that one of the workers has a handler for: the first `AHEAD`
    of each type; empty unless the current job is due."""
    last_handled: LastHandled | None
    """Where the type was last handled by a worker whose row is gone."""
    pauses: list[Pause]
    """Everything that is paused, sorted by scope and name."""
