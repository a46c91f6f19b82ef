"""Rows and records: the columns of a job in their order, ids and JSON as text on the way, bytes in the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import msgspec
from msgspec.structs import replace

from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch, StorageError
from queuert.model import BlockerRow, ChainRow, JobRow

Row = Sequence[Any]

# Name of the field, SQL expression over the aliases `j` (job) and `r` (running, perhaps none), and its type.
_COLUMNS: list[tuple[str, str, str]] = [
    ("id", "j.id::text", "text"),
    ("type_name", "j.type_name", "text"),
    ("chain_id", "j.chain_id::text", "text"),
    ("chain_type", "j.chain_type", "text"),
    ("chain_index", "j.chain_index", "integer"),
    ("input", "j.input::text", "text"),
    ("output", "j.output::text", "text"),
    ("status", "CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END", "text"),
    ("priority", "j.priority", "integer"),
    ("created_at", "j.created_at", "timestamptz"),
    ("scheduled_at", "j.scheduled_at", "timestamptz"),
    ("completed_at", "j.completed_at", "timestamptz"),
    ("completed_by", "j.completed_by", "text"),
    ("continued_to", "j.continued_to::text", "text"),
    ("attempt", "j.attempt + (r.job_id IS NOT NULL)::integer", "integer"),
    ("last_attempt_at", "coalesce(r.started_at, j.last_attempt_at)", "timestamptz"),
    ("last_error", "j.last_error::text", "text"),
    ("leased_by", "r.worker", "text"),
    ("leased_until", "r.leased_until", "timestamptz"),
    ("token", "r.token", "bigint"),
    ("deadline", "j.deadline", "timestamptz"),
    ("dedup_key", "j.dedup_key", "text"),
    ("blockers_left", "j.blockers_left", "integer"),
    ("trace_context", "j.trace_context", "text"),
    ("chain_trace_context", "j.chain_trace_context", "text"),
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
WIDTH = len(_COLUMNS)
_BLANK = JobRow(**dict.fromkeys(JobRow.__struct_fields__))  # type: ignore[arg-type]


def columns(job: str = "j", running: str = "r") -> str:
    """The columns of a job for a select list."""
    expressions = ", ".join(expression for _, expression, _ in _COLUMNS)
    return (
        expressions.replace("j.", f"{job}.").replace("r.", f"{running}.")
        if (job, running) != ("j", "r")
        else expressions
    )


def column_types(prefix: str = "") -> str:
    """Names and types for the result of a function."""
    return ", ".join(f"{prefix}{name} {kind}" for name, _, kind in _COLUMNS)


def no_columns() -> str:
    """As many NULLs of the right types, for a row that has no job."""
    return ", ".join(f"NULL::{kind}" for _, _, kind in _COLUMNS)


def job_of(row: Row) -> JobRow:
    (
        job_id, type_name, chain_id, chain_type, chain_index, input_, output, status, priority, created_at,
        scheduled_at, completed_at, completed_by, continued_to, attempt, last_attempt_at, last_error, leased_by,
        leased_until, token, deadline, dedup_key, blockers_left, trace_context, chain_trace_context,
    ) = row  # fmt: skip
    # Not by JobRow(...): calls with more than 15 arguments go through a dict, and cost three times as much.
    row_of_most = replace(
        _BLANK,
        id=job_id,
        type_name=type_name,
        chain_id=chain_id,
        chain_type=chain_type,
        chain_index=chain_index,
        input=input_.encode(),
        output=_json(output),
        status=status,
        priority=priority,
        created_at=_utc(created_at),
        scheduled_at=_utc(scheduled_at),
        attempt=attempt,
        blockers_left=blockers_left,
    )
    return replace(
        row_of_most,
        completed_at=_utc_or_none(completed_at),
        completed_by=completed_by,
        continued_to=continued_to,
        last_attempt_at=_utc_or_none(last_attempt_at),
        last_error=_json(last_error),
        leased_by=leased_by,
        leased_until=_utc_or_none(leased_until),
        token=token,
        deadline=_utc_or_none(deadline),
        dedup_key=dedup_key,
        trace_context=trace_context,
        chain_trace_context=chain_trace_context,
    )


def running(type_name: str, worker: str, since: datetime, lease: float) -> JobRow:
    """What all jobs of a type that one claim has taken have in common."""
    return replace(
        _BLANK,
        type_name=type_name,
        chain_type=type_name,
        status="running",
        last_attempt_at=_utc(since),
        leased_by=worker,
        leased_until=_utc(since) + timedelta(seconds=lease),
        blockers_left=0,
    )


class Times(dict[float, datetime]):
    """Moments by the seconds since 1970. Jobs that were started together have theirs in common."""

    def __missing__(self, epoch: float) -> datetime:
        moment = self[epoch] = _EPOCH + timedelta(seconds=epoch)
        return moment


def claimed_job(row: Row, alike: JobRow, times: Times) -> JobRow:
    """A job as a claim answers with it, made from what it has in common with others."""
    (
        job_id, _, chain_id, chain_type, chain_index, input_, priority, created_at, scheduled_at, attempt, token,
        last_error, deadline, dedup_key, blockers_left, trace_context, chain_trace_context, _, _, _, _, _,
    ) = row  # fmt: skip
    job = replace(
        alike,
        id=job_id,
        chain_id=chain_id or job_id,
        chain_index=chain_index,
        chain_type=chain_type,
        input=input_.encode(),
        priority=priority,
        created_at=times[created_at],
        scheduled_at=times[scheduled_at],
        attempt=attempt,
        token=token,
    )
    if last_error or deadline or dedup_key or blockers_left or trace_context or chain_trace_context:
        return replace(
            job,
            last_error=_json(last_error),
            deadline=_utc_or_none(deadline),
            dedup_key=dedup_key,
            blockers_left=blockers_left or 0,
            trace_context=trace_context,
            chain_trace_context=chain_trace_context,
        )
    return job


def chain_of(row: Row) -> ChainRow:
    """A chain from the columns of its first job and those of its current one."""
    first = job_of(row[:WIDTH])
    return ChainRow(first, first if row[0] == row[WIDTH] else job_of(row[WIDTH : 2 * WIDTH]))


def blocker_of(row: Row) -> BlockerRow:
    """A blocker from (chain id, chain type, status, output, trace context). Only a completed chain has an output."""
    chain_id, chain_type, status, output, trace_context = row
    return BlockerRow(chain_id, chain_type, status, _json(output) if status == "completed" else None, trace_context)


def raise_problem(problem: str) -> NoReturn:
    """The error for what a function has answered instead of raising it itself."""
    details: Mapping[str, str] = msgspec.json.decode(problem)
    match details["problem"]:
        case "id_exists":
            raise JobIdExists(details["job_id"])
        case "blocker_not_found":
            raise BlockerNotFound(details["job_id"], details["chain_id"])
        case "blocker_type":
            raise JobTypeMismatch(details["chain_id"], details["expected"], details["actual"])
        case _:
            raise StorageError(f"the database reports a problem that this version does not know: {problem}")


def _json(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def _utc(moment: datetime) -> datetime:
    """Some drivers answer in the session's time zone: the same moment, but users see it."""
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)


def _utc_or_none(moment: datetime | None) -> datetime | None:
    return None if moment is None else _utc(moment)
