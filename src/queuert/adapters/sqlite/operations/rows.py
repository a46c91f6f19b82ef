"""Rows and records: the columns of a job in their order, times as integers, and JSON as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from queuert.base.arguments import EARLIEST, LATEST
from queuert.base.times import EPOCH, MICROSECOND
from queuert.errors import InvalidArgument
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.model import BlockerRow, ChainRow, JobRow, When

_LATEST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MICROSECOND
_FIRST, _LAST = ((moment - EPOCH) // MICROSECOND for moment in (EARLIEST, LATEST))

Row = Sequence[Any]

COLUMNS = JobRow.__struct_fields__
"""The columns have the names of the fields, and are selected in their order."""
TYPE, DUE = COLUMNS.index("type_name"), COLUMNS.index("scheduled_at")
_JSON = ("input", "output", "last_error")
_TIMES = [
    COLUMNS.index(name)
    for name in ("created_at", "scheduled_at", "completed_at", "last_attempt_at", "leased_until", "deadline")
]


def columns_of(table: str | None) -> str:
    """The columns of a job for a select list.

    JSON comes as bytes: the driver need not decode it.
    """
    dotted = f"{table}." if table else ""
    return ", ".join(
        f"CAST({dotted}{column} AS BLOB)" if column in _JSON else f"{dotted}{column}" for column in COLUMNS
    )


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - EPOCH) // MICROSECOND


@lru_cache(maxsize=512)
def moment(value: int) -> datetime:
    """Cached, because the jobs of one batch share their times. A moment that Python does not have
    must not cost the whole answer: it is shown as the nearest one that it has.
    """
    return EPOCH + timedelta(microseconds=min(max(value, _FIRST), _LAST))


def resolve(when: When, now: int) -> int:
    """A moment in microseconds: as given, or counted from now."""
    if when.at is not None:
        return micros(when.at)
    return now if when.after is None else add_seconds(now, when.after)


def resolve_due(when: When, now: int) -> int:
    """When a job is due. A time in the past is now: it overtakes no job that is ready."""
    return max(now, resolve(when, now))


def add_seconds(now: int, seconds: float) -> int:
    """`now` plus seconds. A time after the year 9999 could be stored, but not read back."""
    try:
        value = now + timedelta(seconds=seconds) // MICROSECOND
    except OverflowError:
        value = _LATEST + 1
    if value > _LATEST:
        raise InvalidArgument(f"{seconds:g} seconds from now is later than the year 9999")
    return value


def job_of(row: Row) -> JobRow:
    values = list(row)
    for position in _TIMES:
        if (value := values[position]) is not None:
            values[position] = moment(value)
    return JobRow(*values)


def attempt_of(row: Row) -> FailedAttempt:
    number, outcome, begun, ended, *rest = row
    return FailedAttempt(number, outcome, None if begun is None else moment(begun), moment(ended), *rest)


def chain_of(row: Row) -> ChainRow:
    """A chain from the columns of its first job and those of its current one."""
    first = job_of(row[: len(COLUMNS)])
    return ChainRow(first, first if row[0] == row[len(COLUMNS)] else job_of(row[len(COLUMNS) :]))


def blocker_of(row: Row) -> BlockerRow:
    """A blocker from a row of `read.blockers`. Only a completed chain has an output."""
    _, chain_id, chain_type, status, output, trace_context = row
    return BlockerRow(chain_id, chain_type, status, output if status == "completed" else None, trace_context)
