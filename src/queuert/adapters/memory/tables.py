"""The data: four tables of immutable records, and one index.

A `Tables` object is one version of the data. A command that changes something works on a copy of
its own. The copy becomes the next version if the command succeeds. So a finished version never
changes: to keep the data as they were, a transaction, a savepoint or a reader keeps the version.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import NamedTuple

from queuert.errors import InvalidArgument
from queuert.model import BlockerRef, BlockerRow, ChainRow, JobRow, When, WorkerRow


class Held(NamedTuple):
    """A claim."""

    ordinal: int | None
    """The job's place among the worker's claims."""
    last_attempt_at: datetime | None
    """As it was before the claim."""


@dataclass(slots=True)
class Tables:
    now: datetime
    """The time of the command that is carried out, by the store's clock."""

    jobs: dict[str, JobRow] = field(default_factory=dict[str, JobRow])
    """Job id → job."""

    blockers: dict[str, tuple[BlockerRef, ...]] = field(default_factory=dict[str, tuple[BlockerRef, ...]])
    """Job id → the chains that it waits (or waited) for, in the order they were named. Only jobs
    that have blockers."""

    unblocking: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Completed chain → the jobs that it still has to free, by id. These waited for it when it
    completed; jobs that were stored later are not among them."""

    keys: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Chain type and deduplication key → the latest chain that was started under it."""

    pending: list[tuple[int, datetime, str]] = field(default_factory=list[tuple[int, datetime, str]])
    """The index: priority, scheduled time and id of each pending job, in the order of claims."""

    tokens: Iterator[int] = field(default_factory=lambda: count(1))
    """Shared by all versions: a token never repeats, not even after a rollback."""

    workers: dict[str, WorkerRow] = field(default_factory=dict[str, WorkerRow])
    """Worker id → worker."""

    held: dict[str, Held] = field(default_factory=dict[str, "Held"])
    """Job id → what else is known of its claim. Only running jobs."""

    horizons: dict[str, int] = field(default_factory=dict[str, int])
    """Worker id → its horizon, if it was moved. Shared by all versions, and never rolled back."""

    def at(self, now: datetime) -> Tables:
        """The same version, to be read at another time."""
        return Tables(
            now, self.jobs, self.blockers, self.unblocking, self.keys, self.pending, self.tokens, self.workers,
            self.held, self.horizons,
        )  # fmt: skip

    def copy(self, now: datetime) -> Tables:
        """The next version, before anything is changed in it."""
        return Tables(
            now,
            self.jobs.copy(),
            self.blockers.copy(),
            self.unblocking.copy(),
            self.keys.copy(),
            self.pending.copy(),
            self.tokens,
            self.workers.copy(),
            self.held.copy(),
            self.horizons,
        )

    # Jobs

    def put(self, row: JobRow) -> None:
        """Store a job, new or changed."""
        self._remove_from_index(row.id)
        self.jobs[row.id] = row
        if row.status == "pending":
            insort(self.pending, (row.priority, row.scheduled_at, row.id))
        if row.status != "running":
            self.held.pop(row.id, None)

    def remove(self, job_id: str) -> None:
        """Delete a job, and the list of its blockers."""
        self._remove_from_index(job_id)
        self.held.pop(job_id, None)
        self.blockers.pop(job_id, None)
        del self.jobs[job_id]

    def _remove_from_index(self, job_id: str) -> None:
        row = self.jobs.get(job_id)
        if row is not None and row.status == "pending":
            del self.pending[bisect_left(self.pending, (row.priority, row.scheduled_at, row.id))]

    # Chains. They have no table: a chain is its first job, and the jobs that continue it.

    def chain_jobs(self, chain_id: str) -> list[JobRow]:
        """The jobs of a chain in their order; empty if this is not the id of a chain's first
        job.
        """
        rows: list[JobRow] = []
        row = self.jobs.get(chain_id)
        # Until `settle` has stored a continuation, its id may be unknown or that of another job.
        while row is not None and row.chain_index == len(rows):
            rows.append(row)
            row = None if row.continued_to is None else self.jobs.get(row.continued_to)
        return rows

    def chain(self, chain_id: str) -> ChainRow | None:
        rows = self.chain_jobs(chain_id)
        return ChainRow(rows[0], rows[-1]) if rows else None

    def blocker_rows(self, job_id: str) -> list[BlockerRow]:
        """The blockers of a job, each with the status and output of its chain."""
        rows: list[BlockerRow] = []
        for each in self.blockers.get(job_id, ()):
            current = self.chain_jobs(each.chain_id)[-1]  # deleting a chain removes it from these lists
            rows.append(BlockerRow(each.chain_id, each.chain_type, current.status, current.output, each.trace_context))
        return rows

    def dependents(self, chain_id: str) -> list[str]:
        """The jobs that have this chain as a blocker, by id, whatever their status."""
        return sorted(
            job_id for job_id, blockers in self.blockers.items() if any(each.chain_id == chain_id for each in blockers)
        )

    def horizon(self, worker: WorkerRow) -> int:
        return max(worker.horizon, self.horizons.get(worker.id, 0))

    # Moments

    def moment(self, when: When) -> datetime:
        """A moment as it was given, or counted from now."""
        if when.at is not None:
            return when.at.astimezone(UTC)
        return self.now if when.after is None else self.after(when.after)

    def after(self, seconds: float) -> datetime:
        try:
            return self.now + timedelta(seconds=seconds)
        except OverflowError:
            raise InvalidArgument(f"{seconds:g} seconds from now is later than the year 9999") from None

    def is_due(self, row: JobRow) -> bool:
        """Whether a job can be claimed now."""
        return row.status == "pending" and row.scheduled_at <= self.now
