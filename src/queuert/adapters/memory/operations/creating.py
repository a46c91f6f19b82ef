"""Storing new jobs: deduplication, ids, blockers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from queuert.adapters.memory.command import write
from queuert.adapters.memory.tables import Tables
from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch
from queuert.model import BlockerRef, ChainRow, Created, Dedup, JobRow, NewJob

_MICROSECOND = timedelta(microseconds=1)


class Creating:
    @write
    def create_jobs(self, tables: Tables, jobs: Sequence[NewJob]) -> list[Created]:
        """One after the other: a job finds the jobs before it, as its blockers or under its key."""
        return [create_job(tables, job) for job in jobs]


def create_job(tables: Tables, job: NewJob) -> Created:
    """The key is looked at first: if it is taken, nothing else about the job is checked."""
    dedup = job.dedup
    if dedup is not None:
        existing = _chain_with_key(tables, job.chain_type, dedup)
        if existing is not None:
            chain_id = existing.first.id
            return Created(chain_id, chain_id, existing.current.status, ready=False, existing=existing)
    if job.id in tables.jobs:
        raise JobIdExists(job.id)
    blockers = _checked_blockers(tables, job)
    row = _row(tables, job, blockers_left=_not_completed(tables, blockers))
    tables.put(row)
    if blockers:
        tables.blockers[job.id] = blockers
    if dedup is not None:
        tables.keys[job.chain_type, dedup.key] = job.chain_id
    return Created(job.id, job.chain_id, row.status, ready=tables.is_due(row))


def _chain_with_key(tables: Tables, chain_type: str, dedup: Dedup) -> ChainRow | None:
    """The chain that the key points at, if it matches (see `Dedup`)."""
    chain = tables.chain(tables.keys.get((chain_type, dedup.key), ""))
    if chain is None:
        return None
    age = (tables.now - chain.first.created_at) // _MICROSECOND
    return chain if dedup.matches(chain.first.id, chain.current.status, age) else None


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
        scheduled_at=tables.moment(job.schedule),
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
    )
