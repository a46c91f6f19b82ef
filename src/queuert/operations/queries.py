"""Reading jobs and chains."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, TypedDict, TypeVar

from typing_extensions import Unpack

from queuert.errors import InvalidArgument, InvalidCursor, JobTypeMismatch
from queuert.jobs.chain import Chain
from queuert.jobs.record import JobRecord
from queuert.model import (
    TERMINAL,
    ChainFilter,
    JobFilter,
    Order,
    Page,
    PageRequest,
    Status,
    aware,
    check_status,
    check_unicode,
)
from queuert.operations.engine import Engine
from queuert.ports.program import Program

MAX_PAGE = 1000

_INDEX = re.compile("[0-9]{1,18}")

Row = TypeVar("Row")
Item = TypeVar("Item")


def get_chain(engine: Engine, chain_id: str, type_name: str | None) -> Program[Chain[Any] | None]:
    (row,) = yield from engine.state.get_chains([chain_id])
    if row is None:
        return None
    if type_name is not None and row.first.type_name != type_name:
        raise JobTypeMismatch(chain_id, type_name, row.first.type_name)
    return engine.jobs.chain_from_row(row)


def get_job(engine: Engine, job_id: str, type_name: str | None) -> Program[JobRecord[Any] | None]:
    (row,) = yield from engine.state.get_jobs([job_id])
    if row is None:
        return None
    if type_name is not None and row.type_name != type_name:
        raise JobTypeMismatch(job_id, type_name, row.type_name)
    return engine.jobs.record(row)


def get_blockers(engine: Engine, job_id: str) -> Program[list[Chain[Any]] | None]:
    (row,) = yield from engine.state.get_jobs([job_id])
    if row is None:
        return None
    (blockers,) = yield from engine.state.job_blockers([job_id])
    return [engine.jobs.chain_from_blocker(blocker) for blocker in blockers]


def list_jobs(engine: Engine, where: JobFilter, page: PageQuery) -> Program[Page[JobRecord[Any]]]:
    rows = yield from engine.state.list_jobs(where, page.request("jobs"))
    return page.build("jobs", rows, attrgetter("id"), engine.jobs.record)


def list_chains(engine: Engine, where: ChainFilter, page: PageQuery) -> Program[Page[Chain[Any]]]:
    # With a status, the listing follows the current jobs instead. The cursor records which of the
    # two listings it belongs to.
    kind, key = ("chains", "first.id") if where.status is None else ("chains-by-status", "current.id")
    rows = yield from engine.state.list_chains(where, page.request(kind))
    return page.build(kind, rows, attrgetter(key), engine.jobs.chain_from_row)


def list_chain_jobs(engine: Engine, chain_id: str, page: PageQuery) -> Program[Page[JobRecord[Any]]]:
    rows = yield from engine.state.list_chain_jobs(chain_id, page.request("chain-jobs"))
    return page.build("chain-jobs", rows, lambda row: str(row.chain_index), engine.jobs.record)


def list_blocked_jobs(engine: Engine, chain_id: str, page: PageQuery) -> Program[Page[JobRecord[Any]]]:
    rows = yield from engine.state.list_blocked_jobs(chain_id, page.request("blocked-jobs"))
    return page.build("blocked-jobs", rows, attrgetter("id"), engine.jobs.record)


class PageQuery:
    """`limit`, `cursor` and `order` as a user gives them, checked."""

    def __init__(self, limit: int, cursor: str | None, order: Order) -> None:
        if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
            raise InvalidArgument(f"limit must be a number from 1 to {MAX_PAGE}, got {limit!r}")
        if order not in ("asc", "desc"):
            raise InvalidArgument(f"order must be 'asc' or 'desc', got {order!r}")
        self._limit = limit
        self._cursor = cursor
        self._order: Order = order

    def request(self, kind: str) -> PageRequest:
        """One row more than asked for shows whether there is another page."""
        after = None if self._cursor is None else self._decode(kind, self._cursor)
        return PageRequest(self._limit + 1, after, self._order)

    def build(
        self, kind: str, rows: Sequence[Row], key: Callable[[Row], str], item: Callable[[Row], Item]
    ) -> Page[Item]:
        shown = rows[: self._limit]
        cursor = self._encode(kind, key(shown[-1])) if len(rows) > len(shown) else None
        return Page([item(row) for row in shown], cursor)

    def _encode(self, kind: str, key: str) -> str:
        return base64.urlsafe_b64encode(f"{kind}:{self._order}:{key}".encode()).decode()

    def _decode(self, kind: str, cursor: str) -> str:
        try:
            found_kind, order, key = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().split(":", 2)
        except (ValueError, TypeError, binascii.Error):
            raise InvalidCursor(
                f"{cursor!r} is not a cursor: pass the next_cursor of the page before, or none"
            ) from None
        if (found_kind, order) != (kind, self._order):
            raise InvalidCursor(
                f"this cursor belongs to another listing ({found_kind}, {order}), not to this one "
                f"({kind}, {self._order}): keep the filters and the order while paging"
            )
        if kind == "chain-jobs" and not _INDEX.fullmatch(key):
            raise InvalidCursor(f"{cursor!r} is not a cursor: {key[:20]!r} is not a position in a chain")
        return key


class Filters(TypedDict):
    """The filters of a listing, besides the type."""

    status: Status | None
    ids: Sequence[str] | None
    created_after: datetime | None
    created_before: datetime | None


def job_filter(type_name: str | None, **filters: Unpack[Filters]) -> JobFilter:
    return JobFilter(type_name=type_name, **_checked(filters))


def chain_filter(type_name: str | None, *, root_only: bool, **filters: Unpack[Filters]) -> ChainFilter:
    return ChainFilter(type_name=type_name, root_only=root_only, **_checked(filters))


def _checked(filters: Filters) -> dict[str, Any]:
    status, ids = filters["status"], filters["ids"]
    if status is not None:
        check_status(status)
    if isinstance(ids, str | bytes) or not (ids is None or hasattr(ids, "__iter__")):
        raise InvalidArgument(f"ids takes a list of ids, got {ids!r}")
    after, before = filters["created_after"], filters["created_before"]
    return {
        "status": status,
        "ids": None if ids is None else tuple(check_unicode(each, "each of ids") for each in ids),
        "created_after": None if after is None else aware(after, "created_after"),
        "created_before": None if before is None else aware(before, "created_before"),
    }


def ended_chains(engine: Engine, chain_ids: Sequence[str]) -> Program[list[str]]:
    """Those of the chains that have ended or are gone."""
    rows = yield from engine.state.get_chains(chain_ids)
    return [
        chain_id for chain_id, row in zip(chain_ids, rows, strict=True) if row is None or row.current.status in TERMINAL
    ]
