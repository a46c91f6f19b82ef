"""The data: tables of immutable records, and one index.

A `Tables` object is one version of the data. A command that changes something works on a copy of
its own. The copy becomes the next version if the command succeeds. So a finished version never
changes: to keep the data as they were, a transaction, a savepoint or a reader keeps the version.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from queuert.base.statuses import Status
from queuert.errors import InvalidArgument
from queuert.records.archive import ArchiveRow
from queuert.records.audit import AuditRecord
from queuert.records.failed_attempts import KEPT, FailedAttempt, Outcome, told
from queuert.records.history import MINUTE, What, tallied
from queuert.records.limits import Begins, Change, DeclaredLimit
from queuert.records.model import BlockerRef, BlockerRow, ChainRow, JobRow, When
from queuert.records.pauses import Pause, PauseTarget
from queuert.records.retention import TypeRetention
from queuert.records.schedules import ScheduleRow, SeenRelease
from queuert.records.workers import LastHandled, WorkerRow


class Held(NamedTuple):
    """A claim."""

    ordinal: int | None
    """The job's place among the worker's claims."""
    last_attempt_at: datetime | None
    """As it was before the claim."""
    queue: str
    """The queue that the job was claimed through."""


class Window(NamedTuple):
    """How long a key matches at least, whatever happens to its chain."""

    chain_id: str
    started_at: datetime
    until: datetime
    ended: Status | None = None
    """How the chain had ended when it was pruned. None: it is stored."""


class Pruning(NamedTuple):
    """How far pruning is."""

    pruned_at: datetime | None = None
    lap: tuple[str, str] | None = None
    """Type and id of the last chain that the lap looked at. None: no lap is under way."""
    lap_began_at: datetime | None = None
    lap_ended_at: datetime | None = None


TallyKey = tuple[int, int, str, What, int]
"""How much time it covers, when that begins, type, what happened, bucket."""


class Declared(NamedTuple):
    """A declaration of a limit."""

    limit: DeclaredLimit
    first_seen_at: datetime
    last_seen_at: datetime


class LaneState(NamedTuple):
    """What is known of a lane besides its jobs."""

    tag: float | None = None
    """Its place among the turns of its limit. None: it has no turn."""
    begins: Begins = Begins()
    closed_until: datetime | None = None
    holder: str | None = None
    """The job that has begun, if the limit is ordered."""


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

    workers: dict[str, WorkerRow] = field(default_factory=dict[str, WorkerRow])
    """Worker id → worker."""

    held: dict[str, Held] = field(default_factory=dict[str, "Held"])
    """Job id → what else is known of its claim. Only running jobs."""

    pauses: dict[PauseTarget, Pause] = field(default_factory=dict[PauseTarget, Pause])
    """What is paused, also pauses that have ended by themselves."""

    horizons: dict[str, int] = field(default_factory=dict[str, int])
    """Worker id → its horizon, if it was moved. Shared by all versions, and never rolled back."""

    stopped: frozenset[str] = frozenset()
    """The workers that have ended and left jobs behind."""

    last_handled: dict[str, LastHandled] = field(default_factory=dict[str, LastHandled])
    """Job type → where it was last handled, by a worker whose row is gone."""

    audit: tuple[AuditRecord, ...] = ()
    """Who did what, oldest first."""

    schedules: dict[str, ScheduleRow] = field(default_factory=dict[str, ScheduleRow])
    """Name → schedule."""

    releases: dict[tuple[str, str], SeenRelease] = field(default_factory=dict[tuple[str, str], SeenRelease])
    """Schedule and release → when workers of it have declared it."""

    windows: dict[tuple[str, str], Window] = field(default_factory=dict[tuple[str, str], "Window"])
    """Chain type and deduplication key → the window of the chain that has the key, if it has one
    that outlives the chain."""

    policies: dict[str, TypeRetention] = field(default_factory=dict[str, TypeRetention])
    """Chain type → how long its chains are kept, and how far the walk is."""

    attempts: dict[str, tuple[FailedAttempt, ...]] = field(default_factory=dict[str, tuple[FailedAttempt, ...]])
    """Job id → its last attempts that failed or were lost."""

    noted: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """Chain → when pruning looks at it again, or at its key if it is gone."""

    to_archive: dict[str, str] = field(default_factory=dict[str, str])
    """Chain that is due, and is to be archived → its type."""

    archived: dict[str, ArchiveRow] = field(default_factory=dict[str, ArchiveRow])
    """Chain → what is kept of it in the archive, oldest first."""

    pruning: Pruning = field(default_factory=Pruning)

    tallies: dict[TallyKey, tuple[int, float]] = field(default_factory=dict["TallyKey", tuple[int, float]])
    """What happened to jobs: numbers, and seconds together."""

    counting: bool = True
    """Whether the command that is carried out counts what happens."""
    declared: dict[tuple[str, str], Declared] = field(default_factory=dict[tuple[str, str], "Declared"])
    """Limit and digest → the declaration."""

    changes: dict[tuple[str, str | None], Change] = field(default_factory=dict[tuple[str, str | None], Change])
    """Limit and key (None: all keys) → what was set at run time."""

    lanes: dict[str, LaneState] = field(default_factory=dict[str, "LaneState"])
    """Lane → its state, if there is anything to know."""

    weights: dict[str, float] = field(default_factory=dict[str, float])
    """Job id → the weight of its lane, if its limit takes it from the job."""

    def at(self, now: datetime) -> Tables:
        """The same version, to be read at another time."""
        return Tables(
            now, self.jobs, self.blockers, self.unblocking, self.keys, self.pending, self.workers,
            self.held, self.pauses, self.horizons, self.stopped, self.last_handled,
            self.audit, self.schedules, self.releases,
            self.windows, self.policies, self.attempts, self.noted,
            self.to_archive, self.archived, self.pruning, self.tallies,
            declared=self.declared, changes=self.changes, lanes=self.lanes, weights=self.weights,
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
            self.workers.copy(),
            self.held.copy(),
            self.pauses.copy(),
            self.horizons,
            self.stopped,
            self.last_handled.copy(),
            self.audit,
            self.schedules.copy(),
            self.releases.copy(),
            self.windows.copy(),
            self.policies.copy(),
            self.attempts.copy(),
            self.noted.copy(),
            self.to_archive.copy(),
            self.archived.copy(),
            self.pruning,
            self.tallies.copy(),
            declared=self.declared.copy(),
            changes=self.changes.copy(),
            lanes=self.lanes.copy(),
            weights=self.weights.copy(),
        )

    # Jobs

    def put_weighted(self, row: JobRow, weight: float | None) -> None:
        """Store a job with the weight of its lane, which is not part of its row."""
        self.put(row)
        self.weights.pop(row.id, None)
        if weight is not None:
            self.weights[row.id] = weight

    def put(self, row: JobRow) -> None:
        """Store a job, new or changed."""
        self._remove_from_index(row.id)
        self.jobs[row.id] = row
        if row.status == "pending":
            insort(self.pending, (row.priority, row.scheduled_at, row.id))
        if row.status != "running":
            self.held.pop(row.id, None)

    def note_attempt(self, row: JobRow, outcome: Outcome, error: bytes) -> None:
        """The attempt of a running job has ended like this."""
        code, message = told(error)
        ended = FailedAttempt(row.attempt, outcome, row.last_attempt_at, self.now, row.leased_by, code, message)
        self.attempts[row.id] = (*self.attempts.get(row.id, ()), ended)[-KEPT:]

    def happened(
        self, row: JobRow, what: What, since: datetime | None, at: datetime | None = None, *, taken_back: bool = False
    ) -> None:
        """Count what has happened to a job now, or at another time. It took from `since` on; None:
        no time.
        """
        if not self.counting:
            return
        at = at or self.now
        seconds = None if since is None else (at - since).total_seconds()
        moment = int(at.timestamp()) * 1_000_000
        for each in tallied([(row.type_name, moment, what, seconds, -1 if taken_back else 1)]):
            self.add_tally((MINUTE, each.at, each.type_name, each.what, each.bucket), each.number, each.seconds)

    def add_tally(self, key: TallyKey, number: int, seconds: float) -> None:
        known = self.tallies.get(key, (0, 0.0))
        self.tallies[key] = known[0] + number, known[1] + seconds

    def remove(self, job_id: str) -> None:
        """Delete a job, and the list of its blockers."""
        self._remove_from_index(job_id)
        self.held.pop(job_id, None)
        self.blockers.pop(job_id, None)
        self.attempts.pop(job_id, None)
        self.weights.pop(job_id, None)
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

    # Pauses

    def pauses_now(self) -> list[Pause]:
        """Those that have not ended, sorted."""
        found = [each for each in self.pauses.values() if each.until is None or each.until > self.now]
        return sorted(found, key=lambda each: (each.target.scope, each.target.name))

    # Moments

    def moment(self, when: When) -> datetime:
        """A moment as it was given, or counted from now."""
        if when.at is not None:
            return when.at.astimezone(UTC)
        return self.now if when.after is None else self.after(when.after)

    def due(self, when: When) -> datetime:
        """When a job is due. A time in the past is now: it overtakes no job that is ready."""
        return max(self.now, self.moment(when))

    def after(self, seconds: float) -> datetime:
        try:
            return self.now + timedelta(seconds=seconds)
        except OverflowError:
            raise InvalidArgument(f"{seconds:g} seconds from now is later than the year 9999") from None

    def is_due(self, row: JobRow) -> bool:
        """Whether a job can be claimed now."""
        return row.status == "pending" and row.scheduled_at <= self.now
