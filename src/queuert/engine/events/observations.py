"""The events about the writes of a transaction, kept until its commit.

Used only by clients that have observers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

from queuert.base.statuses import TERMINAL
from queuert.engine.callbacks import Step
from queuert.engine.events.observers import Observers
from queuert.engine.events.tracing import Tracing
from queuert.jobs.chain import error_record
from queuert.ports.program import Program, atomically
from queuert.records.limits import split_lane
from queuert.records.model import ChainRow, Created, Freed, JobRow, NewJob, Settled, Settlement, Unblocked

if TYPE_CHECKING:
    from queuert.ports.state import StateOperations

P = ParamSpec("P")
Item = tuple[JobRow, Settlement]


class Write(NamedTuple):
    """The events of one operation, and a check that it was committed: by one job that it
    changed.
    """

    job_id: str
    stands: Callable[[JobRow | None], bool]
    events: list[Callable[[], None]]


class Observations:
    """A hook (see `queuert.engine.transaction`) that collects events."""

    # Runs before the notifications: when a worker or waiter wakes up, the event is already
    # recorded.
    order = 0

    def __init__(self, observers: Observers, state: StateOperations) -> None:
        self._tell = observers
        self._state = state
        self._writes: list[Write] = []
        self._traces = None if observers.tracer is None else Tracing(observers.tracer, state)

    def checkpoint(self) -> Callable[[], None]:
        length = len(self._writes)

        def restore() -> None:
            del self._writes[length:]

        return restore

    def steps(self) -> Iterator[Step]:
        for write in self._writes:
            yield from write.events

    def confirm(self) -> Program[None]:
        """Drop what was not committed, although the block of the caller's transaction ended without
        an error.

        A driver may do that (`psycopg.Rollback`), and so may a caller who rolls back by hand.
        """
        rows = yield from self._state.get_jobs([write.job_id for write in self._writes])
        self._writes = [write for write, row in zip(self._writes, rows, strict=True) if write.stands(row)]

    # What is about to happen

    def creating(self, new_jobs: list[NewJob]) -> Program[list[NewJob]]:
        """The jobs, with the contexts of their traces."""
        return new_jobs if self._traces is None else (yield from self._traces.created(new_jobs))

    def settling(self, items: Sequence[Item]) -> Program[Sequence[Item]]:
        """The settlements, their continuations with the contexts of their traces."""
        return items if self._traces is None else (yield from self._traces.settled(items))

    # Schedules. Workers fire them in transactions of their own, so it is known that they committed.

    def scheduled(self, schedule: str, events: list[Callable[[], None]]) -> None:
        self._writes.append(Write(schedule, _always, events))

    # What happened

    def created(self, new_jobs: Sequence[NewJob], created: Sequence[Created]) -> None:
        events: list[Callable[[], None]] = []
        first: str | None = None
        for new, made in zip(new_jobs, created, strict=True):
            if made.deduplicated:
                if self._traces is not None:
                    self._traces.deduplicated(events, new, made)
                continue
            first = first or new.id
            if new.chain_index == 0:
                later(events, self._tell.chain_created, chain_id=new.chain_id, chain_type=new.chain_type)
            self._job_created(events, new, made)
        if events:
            # If all were deduplicated, nothing was written. The chain that was found may be of the
            # same transaction.
            self._writes.append(Write(first or created[0].chain_id, _exists, events))

    def _job_created(self, events: list[Callable[[], None]], new: NewJob, made: Created) -> None:
        facts = job_facts(new)
        later(events, self._tell.job_created, **facts, chain_index=new.chain_index, **limit_facts(new))
        if made.status == "blocked":
            blockers = [blocker.chain_id for blocker in new.blockers]
            later(events, self._tell.job_blocked, **facts, blocker_ids=blockers)
        if self._traces is not None:
            self._traces.job_created(events, new, blocked=made.status == "blocked")

    def settled(self, items: Sequence[Item], settled: Settled) -> Program[None]:
        ended = [
            row
            for (row, settlement), applied in zip(items, settled.applied, strict=True)
            if applied and settlement.status in TERMINAL
        ]
        if not ended:
            return
        times = yield from self._times(ended)
        events: list[Callable[[], None]] = []
        for (row, settlement), applied, created in zip(items, settled.applied, settled.created, strict=True):
            if applied and settlement.status in TERMINAL:
                self._ended(events, row, settlement, times)
                if settlement.continuation is not None and created is not None:
                    self._job_created(events, settlement.continuation, created)
        for freed in settled.unblocked:
            later(events, self._tell.job_unblocked, job_id=freed.job_id, job_type=freed.type_name)
        if self._traces is not None and settled.unblocked:
            yield from self._resolved(self._traces, events, settled.unblocked, ended)
        (first,) = [s for (row, s), applied in zip(items, settled.applied, strict=True) if applied and row is ended[0]]
        self._writes.append(Write(ended[0].id, partial(_has_ended, first), events))

    def unblocked(self, freed: Freed) -> Program[None]:
        """Jobs that became pending some time after their last blocker had completed."""
        events: list[Callable[[], None]] = []
        for each in freed.unblocked:
            later(events, self._tell.job_unblocked, job_id=each.job_id, job_type=each.type_name)
        if self._traces is not None and freed.chain_id is not None:
            try:
                found = yield from atomically(self._state.get_jobs([freed.chain_id]))
            except Exception:
                found = []  # The jobs are free: that must not fail because a link is unknown.
            ended = [row for row in found if row is not None]
            yield from self._resolved(self._traces, events, freed.unblocked, ended)
        self._writes.append(Write(freed.unblocked[0].job_id, _exists, events))

    def _resolved(
        self, traces: Tracing, events: list[Callable[[], None]], unblocked: Sequence[Unblocked], ended: Sequence[JobRow]
    ) -> Program[None]:
        contexts = {row.chain_id: row.chain_trace_context for row in ended}
        found = yield from traces.blockers([freed.job_id for freed in unblocked])
        for freed, blockers in zip(unblocked, found, strict=True):
            for blocker in blockers:
                traces.blocker_resolved(events, freed.job_id, freed.type_name, blocker, contexts)

    def _times(self, ended: Sequence[JobRow]) -> Program[Times]:
        """When these jobs ended, and when their chains began: the database's clock knows."""
        chains = [row.chain_id for row in ended if row.chain_index]
        ids = list(dict.fromkeys([*(row.id for row in ended), *chains]))
        try:
            # In a savepoint if it runs in the caller's transaction: an error must not break that.
            rows = yield from atomically(self._state.get_jobs(ids))
        except Exception:
            return {}  # The settlement must not fail because its duration is unknown.
        return {row.id: (row.created_at, row.completed_at) for row in rows if row is not None}

    def _ended(self, events: list[Callable[[], None]], row: JobRow, settlement: Settlement, times: Times) -> None:
        tell, job = self._tell, job_facts(row)
        if self._traces is not None:
            self._trace_end(self._traces, events, row, settlement)
        completed_at = times.get(row.id, _UNKNOWN)[1]
        job["duration"] = _between(row.created_at, completed_at)
        chain: dict[str, Any] = {"chain_id": row.chain_id, "chain_type": row.chain_type}
        began = times.get(row.chain_id, _UNKNOWN)[0] if row.chain_index else row.created_at
        chain["duration"] = _between(began, completed_at)
        if settlement.status == "cancelled":
            later(events, tell.job_cancelled, **job)
            later(events, tell.chain_cancelled, **chain)
            return
        job["worker_id"] = chain["worker_id"] = settlement.worker
        if settlement.status == "completed":
            continued = settlement.continuation is not None
            later(events, tell.job_completed, **job, continued=continued)
            if not continued:
                later(events, tell.chain_completed, **chain)
        elif settlement.status == "expired":
            later(events, tell.job_expired, **job)
            later(events, tell.chain_expired, **chain)
        else:
            code = error_facts(settlement.error)["error_code"]
            later(events, tell.job_failed, **job, error_code=code)
            later(events, tell.chain_failed, **chain, error_code=code)

    def _trace_end(
        self, traces: Tracing, events: list[Callable[[], None]], row: JobRow, settlement: Settlement
    ) -> None:
        status = settlement.status
        if status == "completed" and settlement.token is None:
            traces.job_completed_by_hand(events, row, job_facts(row))
        if settlement.continuation is None:
            code = error_facts(settlement.error)["error_code"] if status == "failed" else None
            traces.chain_ended(events, row, settlement, code)

    def triggered(self, jobs: Sequence[JobRow | None]) -> None:
        self._changed(jobs, _was_triggered, self._tell.job_triggered)

    def retried(self, jobs: Sequence[JobRow | None]) -> None:
        self._changed(jobs, _was_retried, self._tell.job_retried)

    def repaired(self, job: JobRow) -> None:
        self._changed([job], _was_repaired, self._tell.job_retried)

    def _changed(
        self, jobs: Sequence[JobRow | None], stands: Callable[[JobRow, JobRow | None], bool], event: Callable[..., None]
    ) -> None:
        for job in jobs:
            if job is not None:
                self._writes.append(Write(job.id, partial(stands, job), [partial(event, **job_facts(job))]))

    def cancelled(self, chains: Sequence[ChainRow]) -> None:
        if not chains:
            return
        events: list[Callable[[], None]] = []
        for chain in chains:
            row, began = chain.current, chain.first.created_at
            times: Times = {row.chain_id: (began, None), row.id: (began, row.completed_at)}
            self._ended(events, row, _cancelling(row), times)
        first = chains[0].current
        self._writes.append(Write(first.id, partial(_has_ended, _cancelling(first)), events))

    def deleted(self, chains: Sequence[ChainRow]) -> None:
        events: list[Callable[[], None]] = []
        for chain in chains:
            first = chain.first
            later(
                events, self._tell.chain_deleted,
                chain_id=first.id, chain_type=first.type_name, status=chain.current.status,
            )  # fmt: skip
            if self._traces is not None:
                self._traces.chain_deleted(events, chain)
        if chains:
            self._writes.append(Write(chains[0].first.id, _is_gone, events))

    def reaped(self, jobs: Sequence[JobRow], worker: str) -> None:
        for job in jobs:
            events: list[Callable[[], None]] = []
            later(events, self._tell.job_reaped, **job_facts(job), attempt_number=job.attempt, worker_id=worker)
            self._writes.append(Write(job.id, _exists, events))


Times = dict[str, tuple[datetime | None, datetime | None]]
_UNKNOWN: tuple[datetime | None, datetime | None] = (None, None)


def _cancelling(row: JobRow) -> Settlement:
    return Settlement(job_id=row.id, token=None, status="cancelled")


def _always(row: JobRow | None) -> bool:
    del row
    return True


def later(events: list[Callable[[], None]], event: Callable[P, None], *args: P.args, **facts: P.kwargs) -> None:
    events.append(partial(event, *args, **facts))


def job_facts(job: JobRow | NewJob) -> dict[str, Any]:
    return {
        "job_id": job.id,
        "job_type": job.type_name,
        "chain_id": job.chain_id,
        "chain_type": job.chain_type,
    }


def limit_facts(job: JobRow | NewJob) -> dict[str, Any]:
    name, key = (None, None) if job.lane is None else split_lane(job.lane)
    return {"limit": name, "limit_key": key}


def error_facts(error: bytes | None) -> dict[str, Any]:
    """The fields of an event that come from an error record."""
    record = error_record(error) or {}
    return {
        "error_code": record.get("code") or "UNHANDLED_ERROR",
        "error_type": record.get("type"),
        "error_message": record.get("message") or "",
    }


def _between(began: datetime | None, ended: datetime | None) -> float | None:
    return None if began is None or ended is None else max(0.0, (ended - began).total_seconds())


# How to see, after a commit, that a write is there. Other processes may have changed the job since.


def _exists(row: JobRow | None) -> bool:
    return row is not None


def _is_gone(row: JobRow | None) -> bool:
    return row is None


def _has_ended(settlement: Settlement, row: JobRow | None) -> bool:
    """Whether this settlement ended the job.

    If it was rolled back, another process may have ended the job a moment later. A settlement that
    may delete the job leaves nothing else to check.
    """
    if row is None:
        return settlement.discard
    return (row.status, row.completed_by) == (settlement.status, settlement.worker)


def _was_triggered(job: JobRow, row: JobRow | None) -> bool:
    return row is None or row.status != "pending" or row.scheduled_at == job.scheduled_at


def _was_repaired(job: JobRow, row: JobRow | None) -> bool:
    return row is None or row.input == job.input


def _was_retried(job: JobRow, row: JobRow | None) -> bool:
    return row is None or row.status != "failed" or row.last_attempt_at != job.last_attempt_at
