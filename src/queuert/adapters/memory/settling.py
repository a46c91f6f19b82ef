"""How jobs end, go on, or come back, and how the end of a chain frees those that wait for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from queuert.adapters.memory.creating import create_job, is_ready
from queuert.adapters.memory.moments import resolve
from queuert.adapters.memory.tables import Tables
from queuert.errors import InvalidArgument
from queuert.model import TERMINAL, Created, JobRow, Settled, Settlement, Unblocked


def settle(tables: Tables, settlements: Sequence[Settlement]) -> Settled:
    """In three steps, each for the whole batch: end the jobs, free dependents, store continuations.

    So a continuation finds the chains that ended in the same batch completed, and is not counted down for them.
    """
    held = [_settle_one(tables, settlement) for settlement in settlements]
    completed = [
        tables.rows[settlement.job_id].chain_id
        for settlement, took_effect in zip(settlements, held, strict=True)
        if took_effect and settlement.status == "completed" and settlement.continuation is None
    ]
    unblocked = _unblock(tables, completed)
    created: list[Created | None] = [
        create_job(tables, settlement.continuation) if took_effect and settlement.continuation is not None else None
        for settlement, took_effect in zip(settlements, held, strict=True)
    ]
    return Settled(held, created, unblocked)


def trigger(tables: Tables, job_ids: Sequence[str]) -> list[JobRow | None]:
    return [_trigger_one(tables, job_id) for job_id in job_ids]


def retry(tables: Tables, job_ids: Sequence[str]) -> list[JobRow | None]:
    # A job that is named twice is answered twice, although the first answer makes it pending.
    retried = {job_id: _retry_one(tables, job_id) for job_id in dict.fromkeys(job_ids)}
    return [retried[job_id] for job_id in job_ids]


def _settle_one(tables: Tables, settlement: Settlement) -> bool:
    row = tables.rows.get(settlement.job_id)
    if settlement.token is None:
        if settlement.status == "pending":
            raise InvalidArgument(f"job {settlement.job_id} can only be put back with the token of its claim")
        if row is None or row.status in TERMINAL:
            return False
    elif row is None or row.token != settlement.token:
        return False
    if settlement.status == "pending":
        tables.put(_put_back(row, settlement, tables.now))
    else:
        tables.put(_ended(row, settlement, tables.now))
    return True


def _ended(row: JobRow, settlement: Settlement, now: datetime) -> JobRow:
    status, error, next_job = settlement.status, settlement.error, settlement.continuation
    completed = status == "completed"
    return replace(
        row,
        status=status,
        output=settlement.output if completed else row.output,
        continued_to=next_job.id if completed and next_job is not None else None,
        last_error=row.last_error if completed or error is None else error,
        completed_at=now,
        completed_by=settlement.worker,
        leased_by=None,
        leased_until=None,
        token=None,
    )


def _put_back(row: JobRow, settlement: Settlement, now: datetime) -> JobRow:
    if settlement.give_back:
        back = replace(row, attempt=row.attempt - 1)
    else:
        error = row.last_error if settlement.error is None else settlement.error
        back = replace(row, scheduled_at=resolve(settlement.schedule, now), last_error=error)
    return replace(back, status="pending", leased_by=None, leased_until=None, token=None)


def _unblock(tables: Tables, completed: Sequence[str]) -> list[Unblocked]:
    """Count down the jobs that wait for these chains."""
    waiting = sorted({job_id for chain_id in completed for job_id in tables.dependents(chain_id)})
    done = set(completed)
    freed = (_count_down(tables, job_id, done) for job_id in waiting)
    return [Unblocked(row.id, row.type_name, is_ready(row, tables.now)) for row in _present(freed)]


def _count_down(tables: Tables, job_id: str, completed: set[str]) -> JobRow | None:
    """The job, if it waits for nothing any more."""
    row = tables.rows[job_id]
    if row.status != "blocked":
        return None
    left = row.blockers_left - sum(edge.chain_id in completed for edge in tables.edges(job_id))
    row = replace(row, blockers_left=left, status="blocked" if left else "pending")
    tables.put(row)
    return None if left else row


def _trigger_one(tables: Tables, job_id: str) -> JobRow | None:
    row = tables.rows.get(job_id)
    if row is None or row.status != "pending":
        return None
    if row.scheduled_at > tables.now:
        row = replace(row, scheduled_at=tables.now)
        tables.put(row)
    return row


def _retry_one(tables: Tables, job_id: str) -> JobRow | None:
    row = tables.rows.get(job_id)
    if row is None or row.status != "failed":
        return None
    row = replace(row, status="pending", attempt=0, scheduled_at=tables.now, completed_at=None, completed_by=None)
    tables.put(row)
    return row


def _present(rows: Iterable[JobRow | None]) -> Iterable[JobRow]:
    return (row for row in rows if row is not None)
