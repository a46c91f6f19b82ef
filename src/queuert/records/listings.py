"""Listings: which rows they have, and their pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from queuert.base.statuses import STATUSES, TERMINAL, Status
from queuert.errors import InvalidCursor
from queuert.records.model import JobRow

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Order = Literal["asc", "desc"]


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows a listing has: those that match every field that is not None. A field with several
    values matches each of them.

    Status, type, error and end of a chain are those of its current job. Its creation is that of its
    first job.
    """

    statuses: tuple[Status, ...] | None = None
    types: tuple[str, ...] | None = None
    chain_types: tuple[str, ...] | None = None
    job_ids: tuple[str, ...] | None = None
    """Of chains: those that one of these jobs belongs to."""
    chain_ids: tuple[str, ...] | None = None
    keys: tuple[str, ...] | None = None
    """The chains that these deduplication keys refer to, and their jobs."""
    errors: tuple[str, ...] | None = None
    """Codes, or names of exception types, of the last error. A completed job has no error."""
    created_from: datetime | None = None
    created_before: datetime | None = None
    ended_from: datetime | None = None
    ended_before: datetime | None = None

    @property
    def possible(self) -> tuple[Status, ...] | None:
        """The statuses that a matching row can have; None if it can have any."""
        ended = self.ended_from is not None or self.ended_before is not None
        if self.errors is None and not ended:
            return self.statuses
        return tuple(
            status
            for status in (STATUSES if self.statuses is None else self.statuses)
            if not (self.errors is not None and status == "completed") and not (ended and status not in TERMINAL)
        )

    @property
    def by_chain(self) -> bool:
        """Whether a listing of jobs follows their chains, and is sorted by chain id and index."""
        return self.job_ids is None and (self.chain_ids is not None or self.keys is not None)


class ChainFilter(JobFilter, frozen=True, kw_only=True):
    """`root_only`: chains that no job has as a blocker."""

    root_only: bool = False

    @property
    def by_current(self) -> bool:
        """Whether a listing of chains follows their current jobs, and is sorted by the ids of these
        jobs.
        """
        return self.possible is not None or self.types is not None


EXAMINED_AT_ONCE = 2000
"""How many rows a page of a listing reads, if only few of them match."""


class PageRequest(msgspec.Struct, frozen=True):
    """`limit` rows after the row whose sort key is `after` (None: from the start), in `order`.

    `examine`: at most this many rows are read, if `limit` is not above it. Then the page ends, even
    if it is not full.
    """

    limit: int
    after: str | None = None
    order: Order = "asc"
    examine: int = EXAMINED_AT_ONCE

    def chain_index(self) -> int | None:
        """`after` in a listing of a chain's jobs, which is sorted by their index."""
        if self.after is None:
            return None
        if not (self.after.isascii() and self.after.isdigit()):
            raise InvalidCursor(f"{self.after!r} is not a position in a chain")
        return min(int(self.after), 2**31 - 1)

    def chain_position(self) -> tuple[str, int] | None:
        """`after` in a listing of jobs that follows their chains: a chain id and an index."""
        if self.after is None:
            return None
        chain_id, slash, index = self.after.rpartition("/")
        if not (slash and index.isascii() and index.isdigit()):
            raise InvalidCursor(f"{self.after!r} is not a chain and a position in it")
        return chain_id, min(int(index), 2**31 - 1)


class Listed(msgspec.Struct, Generic[T], frozen=True):
    """The rows of a page.

    `stopped_at`: the page is not full, because enough rows were read. The sort key of the last one:
    the next page begins after it. None if the page is full, or if there are no more rows.
    """

    rows: list[T]
    stopped_at: str | None = None


class Page(msgspec.Struct, Generic[T_co], frozen=True):
    """One page of a listing. `iter_chains` and `iter_jobs` go through all pages for you."""

    items: Sequence[T_co]
    """What the page contains. It can be less than the limit, even nothing, although there is a next
    page: a page stops when it has read 2,000 rows and few of them match the filters."""
    next_cursor: str | None
    """Pass it as `cursor=` to get the next page. None: this is the last page."""


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
