"""Storing new jobs: deduplication, ids, blockers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from queuert.adapters.memory.moments import resolve
from queuert.adapters.memory.tables import DedupKey, Tables
from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch
from queuert.model import TERMINAL, BlockerRef, ChainRow, Created, Dedup, JobRow, NewJob, seconds

_MICROSECOND = timedelta(microseconds=1)


def create_jobs(tables: Tables, jobs: Sequence[NewJob]) -> list[Created]:
    """One after the other, so that each sees those before it."""
    return [create_job(tables, job) for job in jobs]


def create_job(tables: Tables, job: NewJob) -> Created:
    dedup = job.dedup
    if dedup is not None:
        existing = _holder_of(tables, (job.chain_type, dedup.key), dedup)
        if existing is not None:
            return Created(
                existing.first.id, existing.first.id, existing.current.status, ready=False, existing=existing
            )
    if job.id in tables.rows:
        raise JobIdExists(job.id)
    row = _row(job, tables.now)
    if job.blockers:
        edges = _edges(tables, job)
        tables.put_edges(job.id, edges)
        row = _waiting_for(tables, row, edges)
    tables.put(row)
    if dedup is not None:
        tables.put_key((job.chain_type, dedup.key), job.chain_id)
    return Created(job.id, job.chain_id, row.status, is_ready(row, tables.now))


def is_ready(row: JobRow, now: datetime) -> bool:
    return row.status == "pending" and row.scheduled_at <= now


def _holder_of(tables: Tables, key: DedupKey, dedup: Dedup) -> ChainRow | None:
    """The chain that the key points at, if it stands in the way of a new one."""
    chain_id = tables.key(key)
    chain = None if chain_id is None else tables.chain(chain_id)
    if chain is None or chain.first.id in dedup.exclude:
        return None
    if dedup.scope == "incomplete":
        matches = chain.current.status not in TERMINAL
    elif dedup.window is None:
        matches = True
    else:
        age = (tables.now - chain.first.created_at) // _MICROSECOND
        matches = age < round(seconds(dedup.window, "window") * 1_000_000)
    return chain if matches else None


def _edges(tables: Tables, job: NewJob) -> tuple[BlockerRef, ...]:
    """The blockers that were named, checked, each once."""
    edges: dict[str, BlockerRef] = {}
    for blocker in job.blockers:
        first = None if blocker.chain_id == job.chain_id else tables.job(blocker.chain_id)
        if first is None or first.chain_index != 0:
            raise BlockerNotFound(job.id, blocker.chain_id)
        if first.type_name != blocker.chain_type:
            raise JobTypeMismatch(blocker.chain_id, blocker.chain_type, first.type_name)
        edges.setdefault(blocker.chain_id, blocker)
    return tuple(edges.values())


def _waiting_for(tables: Tables, row: JobRow, edges: Sequence[BlockerRef]) -> JobRow:
    left = 0
    for edge in edges:
        current = tables.current(edge.chain_id)
        # A chain that is being continued in the same call is not complete, though its next job is not stored yet.
        left += current is None or current.status != "completed" or current.continued_to is not None
    return replace(row, status="blocked", blockers_left=left) if left else row


def _row(job: NewJob, now: datetime) -> JobRow:
    # Not by JobRow(...): calls with more than 15 arguments go through a dict, and cost seven times as much.
    row = replace(
        _BLANK,
        id=job.id,
        type_name=job.type_name,
        chain_id=job.chain_id,
        chain_type=job.chain_type,
        chain_index=job.chain_index,
        input=job.input,
        priority=job.priority,
        created_at=now,
        scheduled_at=resolve(job.schedule, now),
        trace_context=job.trace_context,
        chain_trace_context=job.chain_trace_context,
    )
    if job.deadline is not None or job.dedup is not None:
        row = replace(
            row,
            deadline=None if job.deadline is None else resolve(job.deadline, now),
            dedup_key=None if job.dedup is None else job.dedup.key,
        )
    return row


_EPOCH = datetime.fromtimestamp(0, UTC)
_BLANK = JobRow(
    id="",
    type_name="",
    chain_id="",
    chain_type="",
    chain_index=0,
    input=b"",
    output=None,
    status="pending",
    priority=0,
    created_at=_EPOCH,
    scheduled_at=_EPOCH,
    completed_at=None,
    completed_by=None,
    continued_to=None,
    attempt=0,
    last_attempt_at=None,
    last_error=None,
    leased_by=None,
    leased_until=None,
    token=None,
    deadline=None,
    dedup_key=None,
    blockers_left=0,
    trace_context=None,
    chain_trace_context=None,
)
