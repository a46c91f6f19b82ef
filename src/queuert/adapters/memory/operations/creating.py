"""Storing new jobs: deduplication, ids, blockers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from queuert.adapters.memory.command import write
from queuert.adapters.memory.tables import Tables, Window
from queuert.base.times import MICROSECOND
from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch
from queuert.records.dedup import Dedup, trailing_delay
from queuert.records.model import BlockerRef, ChainRow, Created, JobRow, NewJob, When


class Creating:
    @write
    def create_jobs(self, tables: Tables, jobs: Sequence[NewJob]) -> list[Created]:
        """One after the other: a job finds the jobs before it, as its blockers or under its key."""
        return [create_job(tables, job) for job in jobs]

    @write
    def replace_waiting(self, tables: Tables, jobs: Sequence[NewJob]) -> list[ChainRow]:
        return [_replace(tables, job, tables.jobs[job.id]) for job in jobs]


def create_job(tables: Tables, job: NewJob) -> Created:
    """The key is looked at first: if it is taken, nothing else about the job is checked."""
    dedup = job.dedup
    if dedup is not None and job.collapse is not None:
        waiting = _collapsible(tables, job, dedup)
        if waiting is not None:
            return _collapse(tables, job, waiting)
        if job.collapse == "trail":
            job = _after_period(tables, job, dedup)
    elif dedup is not None:
        existing = _chain_with_key(tables, job.chain_type, dedup)
        if existing is not None:
            chain_id = existing.first.id
            return Created(chain_id, chain_id, existing.current.status, ready=False, existing=existing)
        pruned = _pruned_with_key(tables, job.chain_type, dedup)
        if pruned is not None:
            return pruned
    if job.id in tables.jobs:
        raise JobIdExists(job.id)
    blockers = _checked_blockers(tables, job)
    row = _row(tables, job, blockers_left=_not_completed(tables, blockers))
    tables.put_weighted(row, job.weight)
    if blockers:
        tables.blockers[job.id] = blockers
    if dedup is not None:
        key = job.chain_type, dedup.key
        tables.keys[key] = job.chain_id
        tables.windows.pop(key, None)
        if dedup.outlives is not None:
            started_at = row.scheduled_at if job.collapse == "trail" else tables.now
            until = started_at + timedelta(seconds=dedup.outlives)
            tables.windows[key] = Window(job.chain_id, started_at, until)
    return Created(job.id, job.chain_id, row.status, ready=tables.is_due(row))


def _chain_with_key(tables: Tables, chain_type: str, dedup: Dedup) -> ChainRow | None:
    """The chain that the key points at, if it matches (see `Dedup`)."""
    chain = tables.chain(tables.keys.get((chain_type, dedup.key), ""))
    if chain is None:
        return None
    age = (tables.now - chain.first.created_at) // MICROSECOND
    return chain if dedup.matches(chain.first.id, chain.current.status, age, waiting=chain.is_waiting) else None


def _pruned_with_key(tables: Tables, chain_type: str, dedup: Dedup) -> Created | None:
    """The same for a chain that was pruned. Its key is kept until its own window ends."""
    window = tables.windows.get((chain_type, dedup.key))
    if window is None or window.ended is None:
        return None
    age = (tables.now - window.started_at) // MICROSECOND
    if not dedup.matches_pruned(window.chain_id, window.ended, age):
        return None
    return Created(window.chain_id, window.chain_id, window.ended, ready=False, pruned=True)


def _collapsible(tables: Tables, job: NewJob, dedup: Dedup) -> JobRow | None:
    """The waiting job that this one replaces, postpones or holds."""
    chain = tables.chain(tables.keys.get((job.chain_type, dedup.key), ""))
    if chain is None or not chain.is_waiting or chain.first.id in tables.blockers:
        return None
    if job.collapse == "trail":
        is_later = _due_under_key(tables, job, dedup) > tables.now
        return chain.first if is_later and chain.first.id not in dedup.exclude else None
    found = _chain_with_key(tables, job.chain_type, dedup)
    return None if found is None else found.first


def _collapse(tables: Tables, job: NewJob, waiting: JobRow) -> Created:
    replaced = job.collapse in ("replace", "trail")
    # A transaction has the store to itself: what it holds cannot change until it ends.
    existing = ChainRow(waiting, waiting) if job.collapse == "hold" else _replace(tables, job, waiting)
    return Created(waiting.id, waiting.id, waiting.status, ready=False, existing=existing, replaced=replaced)


def _replace(tables: Tables, job: NewJob, waiting: JobRow) -> ChainRow:
    row = waiting
    if job.collapse != "trail":
        assert job.dedup is not None
        latest = waiting.created_at + timedelta(microseconds=job.dedup.window_length)
        row = replace(row, scheduled_at=max(tables.now, min(tables.due(job.schedule), latest)))
    if job.collapse == "postpone":
        tables.put(row)
    else:
        deadline = None if job.deadline is None else tables.moment(job.deadline)
        row = replace(row, input=job.input, priority=job.priority, deadline=deadline, lane=job.lane)
        tables.put_weighted(row, job.weight)
    return ChainRow(row, row)


def _after_period(tables: Tables, job: NewJob, dedup: Dedup) -> NewJob:
    """A throttled job that replaces no other: due now, or when the period ends."""
    since = (tables.now - _due_under_key(tables, job, dedup)) // MICROSECOND
    delay = trailing_delay(since, dedup.window_length)
    return job if delay is None else replace(job, schedule=When(at=tables.now + timedelta(microseconds=delay)))


def _due_under_key(tables: Tables, job: NewJob, dedup: Dedup) -> datetime:
    """When the chain that has the key was due at first. Without one: long ago."""
    key = job.chain_type, dedup.key
    window = tables.windows.get(key)
    if window is not None and (window.ended is not None or tables.keys.get(key) == window.chain_id):
        return window.started_at
    chain = tables.chain(tables.keys.get(key, ""))
    return datetime.min.replace(tzinfo=UTC) if chain is None else chain.first.created_at


def _checked_blockers(tables: Tables, job: NewJob) -> tuple[BlockerRef, ...]:
    """Each chain once, where it was named first. A job cannot wait for its own chain."""
    found: dict[str, BlockerRef] = {}
    for blocker in job.blockers:
        first = tables.jobs.get(blocker.chain_id)
        if first is None or first.chain_index != 0 or first.id == job.chain_id:
            raise BlockerNotFound(job.id, blocker.chain_id)
        if first.type_name != blocker.chain_type:
            raise JobTypeMismatch(blocker.chain_id, blocker.chain_type, first.type_name)
        found.setdefault(blocker.chain_id, blocker)
    return tuple(found.values())


def _not_completed(tables: Tables, blockers: Sequence[BlockerRef]) -> int:
    """How many of the chains a job must wait for: all but completed ones, failed ones too."""
    count = 0
    for blocker in blockers:
        current = tables.chain_jobs(blocker.chain_id)[-1]
        # A chain that the same call continues is not complete, with its next job stored or not.
        count += current.status != "completed" or current.continued_to is not None
    return count


def _row(tables: Tables, job: NewJob, *, blockers_left: int) -> JobRow:
    return JobRow(
        id=job.id,
        type_name=job.type_name,
        chain_id=job.chain_id,
        chain_type=job.chain_type,
        chain_index=job.chain_index,
        input=job.input,
        output=None,
        status="blocked" if blockers_left else "pending",
        priority=job.priority,
        created_at=tables.now,
        scheduled_at=tables.due(job.schedule),
        completed_at=None,
        completed_by=None,
        continued_to=None,
        attempt=0,
        last_attempt_at=None,
        last_error=None,
        leased_by=None,
        leased_until=None,
        token=None,
        deadline=None if job.deadline is None else tables.moment(job.deadline),
        dedup_key=None if job.dedup is None else job.dedup.key,
        blockers_left=blockers_left,
        trace_context=job.trace_context,
        chain_trace_context=job.chain_trace_context,
        lane=job.lane,
    )
