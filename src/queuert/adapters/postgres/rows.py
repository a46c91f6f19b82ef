"""Rows and records: the columns of a job in their order.

Ids and JSON are sent as text; JSON is bytes in the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import msgspec

from queuert.base.arguments import EARLIEST, LATEST
from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch, StorageError
from queuert.records.model import BlockerRow, ChainRow, JobRow

Row = Sequence[Any]

# For each field of a JobRow: a SQL expression over the aliases `j` (job) and `r` (running, if any),
# and its type.
_COLUMNS: dict[str, tuple[str, str]] = {
    "id": ("j.id::text", "text"),
    "type_name": ("j.type_name", "text"),
    "chain_id": ("j.chain_id::text", "text"),
    "chain_type": ("j.chain_type", "text"),
    "chain_index": ("j.chain_index", "integer"),
    "input": ("j.input::text", "text"),
    "output": ("j.output::text", "text"),
    "status": ("CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END", "text"),
    "priority": ("j.priority", "integer"),
    "created_at": ("j.created_at", "timestamptz"),
    "scheduled_at": ("j.scheduled_at", "timestamptz"),
    "completed_at": ("j.completed_at", "timestamptz"),
    "completed_by": ("j.completed_by", "text"),
    "continued_to": ("j.continued_to::text", "text"),
    "attempt": ("j.attempt + (r.job_id IS NOT NULL)::integer", "integer"),
    "last_attempt_at": ("coalesce(r.started_at, j.last_attempt_at)", "timestamptz"),
    "last_error": ("j.last_error::text", "text"),
    "leased_by": ("r.worker", "text"),
    "leased_until": ("r.leased_until", "timestamptz"),
    "token": ("r.token", "bigint"),
    "deadline": ("j.deadline", "timestamptz"),
    "dedup_key": ("j.dedup_key", "text"),
    "blockers_left": ("j.blockers_left", "integer"),
    "trace_context": ("j.trace_context", "text"),
    "chain_trace_context": ("j.chain_trace_context", "text"),
    "lane": ("j.lane", "text"),
    # An older version starts the attempts again without the losses.
    "losses": ("least(j.losses, j.attempt)", "integer"),
}

# The columns of a claim, and their types. Its first row has the last three, the others are jobs.
_CLAIMED: dict[str, str] = {
    "id": "text",
    "type_name": "text",
    "chain_id": "text",
    "chain_type": "text",
    "chain_index": "integer",
    "input": "text",
    "priority": "integer",
    "created_at": "double precision",
    "scheduled_at": "double precision",
    "attempt": "integer",
    "token": "bigint",
    "ordinal": "bigint",
    "last_error": "text",
    "deadline": "timestamptz",
    "dedup_key": "text",
    "blockers_left": "integer",
    "trace_context": "text",
    "chain_trace_context": "text",
    "expired": "boolean",
    "ran_before": "boolean",
    "losses": "integer",
    "blockers": "text",
    "lane": "text",
    "more": "boolean",
    "next_in": "double precision",
    "claimed_at": "timestamptz",
}

WIDTH = len(_COLUMNS)
_FIELDS = JobRow.__struct_fields__
_JSON = [_FIELDS.index(name) for name in ("input", "output", "last_error")]
_TIMES = [place for place, name in enumerate(_FIELDS) if _COLUMNS[name][1] == "timestamptz"]


def _readable(name: str) -> str:
    """The expression of a column. A moment that Python does not have, such as infinity, is shown as
    the nearest one that it has: a driver would refuse it, with all other rows of its answer.
    """
    expression, kind = _COLUMNS[name]
    if kind != "timestamptz":
        return expression
    return (
        f"CASE WHEN {expression} < '{EARLIEST}' THEN '{EARLIEST}' WHEN {expression} > '{LATEST}' THEN '{LATEST}' "
        f"ELSE {expression} END"
    )


def columns(job: str = "j", running: str = "r") -> str:
    """The columns of a job for a select list."""
    expressions = ", ".join(_readable(name) for name in _FIELDS)
    if (job, running) == ("j", "r"):
        return expressions
    return expressions.replace("j.", f"{job}.").replace("r.", f"{running}.")


def column_types(prefix: str = "") -> str:
    """Names and types for the result of a function."""
    return ", ".join(f"{prefix}{name} {_COLUMNS[name][1]}" for name in _FIELDS)


def claimed_types() -> str:
    """Names and types for the result of a claim."""
    return ", ".join(f"{name} {kind}" for name, kind in _CLAIMED.items())


def no_columns() -> str:
    """As many NULLs of the right types, for a row that has no job."""
    return ", ".join(f"NULL::{_COLUMNS[name][1]}" for name in _FIELDS)


def job_of(row: Row) -> JobRow:
    values = list(row)
    for place in _JSON:
        values[place] = json_of(values[place])
    for place in _TIMES:
        if values[place] is not None:
            values[place] = utc(values[place])
    return JobRow(*values)


def chain_of(row: Row) -> ChainRow:
    """A chain from the columns of its first job and those of its current one."""
    width = WIDTH if len(row) >= 2 * WIDTH else len(row) // 2  # functions of an older version return less
    first = job_of(row[:width])
    return ChainRow(first, first if row[0] == row[width] else job_of(row[width : 2 * width]))


def blocker_of(row: Row) -> BlockerRow:
    """A blocker from (chain id, chain type, status, output, trace context).

    Only a completed chain has an output.
    """
    chain_id, chain_type, status, output, trace_context = row
    return BlockerRow(chain_id, chain_type, status, json_of(output) if status == "completed" else None, trace_context)


def raise_problem(problem: str) -> NoReturn:
    """The error for a problem that a function has returned instead of raising it."""
    details: Mapping[str, str] = msgspec.json.decode(problem)
    match details["problem"]:
        case "id_exists":
            raise JobIdExists(details["job_id"])
        case "blocker_not_found":
            raise BlockerNotFound(details["job_id"], details["chain_id"])
        case "blocker_type":
            raise JobTypeMismatch(details["chain_id"], details["expected"], details["actual"])
        case _:
            raise StorageError(f"the database reported a problem that this version does not know: {problem}")


def json_of(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


def utc(moment: datetime) -> datetime:
    """Some drivers return times in the session's time zone. Users get UTC."""
    return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
