"""Whether a row that was read matches a filter: what databases test in SQL."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import msgspec

from queuert.listing_records import JobFilter
from queuert.model import JobRow


def row_matches(where: JobFilter, first: JobRow, current: JobRow) -> bool:
    """A job, or a chain by its first and its current job. Ids of jobs and keys are not tested: the
    rows do not contain them.
    """
    possible = where.possible
    if possible is not None and current.status not in possible:
        return False
    if where.types is not None and current.type_name not in where.types:
        return False
    if where.chain_types is not None and current.chain_type not in where.chain_types:
        return False
    if where.chain_ids is not None and current.chain_id not in where.chain_ids:
        return False
    if where.errors is not None and _error_names(current).isdisjoint(where.errors):
        return False
    return _within(first.created_at, where.created_from, where.created_before) and _within(
        current.completed_at, where.ended_from, where.ended_before
    )


def _error_names(row: JobRow) -> set[object]:
    record: Any = None if row.last_error is None else msgspec.json.decode(row.last_error)
    if not isinstance(record, dict):
        return set()
    fields = cast("dict[str, object]", record)
    return {name for name in (fields.get("code"), fields.get("type")) if isinstance(name, str)}


def _within(moment: datetime | None, start: datetime | None, end: datetime | None) -> bool:
    if moment is None:
        return start is None and end is None
    return (start is None or moment >= start) and (end is None or moment < end)
