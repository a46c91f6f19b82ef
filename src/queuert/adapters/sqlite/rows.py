"""Rows and records: the columns of a job in their order, times as integers, and JSON as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from msgspec.structs import replace

from queuert.errors import InvalidArgument
from queuert.model import BlockerRow, ChainRow, JobRow, When

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // _MICROSECOND

Row = Sequence[Any]

_NOTHING: dict[str, Any] = dict.fromkeys(JobRow.__struct_fields__)
_BLANK = JobRow(**_NOTHING)

_JSON = ("input", "output", "last_error")
COLUMNS = JobRow.__struct_fields__
"""The columns are called like the fields, and selected in their order."""


def columns_of(table: str | None) -> str:
    """The columns of a job for a select list. JSON comes as bytes: the driver need not decode it."""
    dotted = f"{table}." if table else ""
    return ", ".join(
        f"CAST({dotted}{column} AS BLOB)" if column in _JSON else f"{dotted}{column}" for column in COLUMNS
    )


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - EPOCH) // _MICROSECOND


@lru_cache(maxsize=512)
def _moment(value: int) -> datetime:
    """Cached, because the jobs of one batch share their times."""
    return EPOCH + timedelta(microseconds=value)


def moment_of(value: int | None) -> datetime | None:
    return None if value is None else _moment(value)


def resolve(when: When, now: int) -> int:
    """A moment in microseconds: as given, or counted from now."""
    if when.at is not None:
        return micros(when.at)
    return now if when.after is None else add_seconds(now, when.after)


def add_seconds(now: int, seconds: float) -> int:
    """`now` and some seconds. What lies beyond the calendar could be stored, but never be read back."""
    try:
        value = now + timedelta(seconds=seconds) // _MICROSECOND
    except OverflowError:
        value = _LATEST + 1
    if value > _LATEST:
        raise InvalidArgument(f"{seconds:g} seconds from now is later than the year 9999")
    return value


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
        input=input_,
        output=output,
        status=status,
        priority=priority,
        created_at=_moment(created_at),
        scheduled_at=_moment(scheduled_at),
        attempt=attempt,
        blockers_left=blockers_left,
    )
    return replace(
        row_of_most,
        completed_at=moment_of(completed_at),
        completed_by=completed_by,
        continued_to=continued_to,
        last_attempt_at=moment_of(last_attempt_at),
        last_error=last_error,
        leased_by=leased_by,
        leased_until=moment_of(leased_until),
        token=token,
        deadline=moment_of(deadline),
        dedup_key=dedup_key,
        trace_context=trace_context,
        chain_trace_context=chain_trace_context,
    )


def chain_of(row: Row) -> ChainRow:
    """A chain from the columns of its first job and those of its current one."""
    first = job_of(row[: len(COLUMNS)])
    return ChainRow(first, first if row[0] == row[len(COLUMNS)] else job_of(row[len(COLUMNS) :]))


def blocker_of(row: Row) -> BlockerRow:
    """A blocker from a row of `read.blockers`. Only a completed chain has an output."""
    _, chain_id, chain_type, status, output, trace_context = row
    return BlockerRow(chain_id, chain_type, status, output if status == "completed" else None, trace_context)
