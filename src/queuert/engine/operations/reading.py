"""Reading jobs and chains."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from queuert.base.arguments import Duration
from queuert.base.own_types import is_own
from queuert.base.statuses import TERMINAL, Status
from queuert.engine.engine import Engine
from queuert.engine.operations.archived import not_found
from queuert.engine.operations.history import history
from queuert.errors import ChainArchived, InvalidArgument, InvalidCursor, JobTypeMismatch
from queuert.jobs.chain import Chain
from queuert.jobs.record import JobRecord
from queuert.ports.program import Program
from queuert.records.history import Histogram
from queuert.records.listings import ChainFilter, JobFilter, Listed, Order, Page, PageRequest
from queuert.records.model import ChainRow, JobRow, TypeStats

MAX_PAGE = 1000
"""The largest `limit` of a listing."""

_INDEX = re.compile("[0-9]{1,18}")

Row = TypeVar("Row")
Item = TypeVar("Item")


def get_chain(engine: Engine, chain_id: str, type_name: str | None) -> Program[Chain[Any] | None]:
    (row,) = yield from engine.state.get_chains([chain_id])
    if row is None:
        error = yield from not_found(engine, chain_id)
        if isinstance(error, ChainArchived):
            raise error
        return None
    if type_name is not None and row.first.type_name not in engine.jobs.names_of(type_name):
        raise JobTypeMismatch(chain_id, type_name, row.first.type_name)
    return engine.jobs.chain_from_row(row)


def get_job(engine: Engine, job_id: str, type_name: str | None) -> Program[JobRecord[Any] | None]:
    (row,) = yield from engine.state.get_jobs([job_id])
    if row is None:
        return None
    if type_name is not None and row.type_name not in engine.jobs.names_of(type_name):
        raise JobTypeMismatch(job_id, type_name, row.type_name)
    return engine.jobs.record(row)


def get_blockers(engine: Engine, job_id: str, type_name: str | None) -> Program[list[Chain[Any]] | None]:
    record = yield from get_job(engine, job_id, type_name)
    if record is None:
        return None
    (blockers,) = yield from engine.state.job_blockers([job_id])
    return [engine.jobs.chain_from_blocker(blocker) for blocker in blockers]


def failed_blockers(engine: Engine, job_id: str) -> Program[dict[str, Status]]:
    """The chains that the job waits for in vain: they ended without an output."""
    (blockers,) = yield from engine.state.job_blockers([job_id])
    return {each.chain_id: each.status for each in blockers if each.status in TERMINAL and each.status != "completed"}


def list_jobs(engine: Engine, where: JobFilter, page: PageQuery) -> Program[Page[JobRecord[Any]]]:
    # The jobs of chains are listed chain by chain. The cursor records which of the two listings it
    # belongs to.
    kind = "jobs-by-chain" if where.by_chain else "jobs"
    key = _place_in_chain if where.by_chain else attrgetter("id")
    listed = yield from without_own(where, partial(engine.state.list_jobs, where), page.request(kind), key, _job_is_own)
    return page.build(kind, listed.rows, key, engine.jobs.record, listed.stopped_at)


def list_chains(engine: Engine, where: ChainFilter, page: PageQuery) -> Program[Page[Chain[Any]]]:
    # With a status, for example, the listing follows the current jobs instead.
    kind, field = ("chains-by-status", "current.id") if where.by_current else ("chains", "first.id")
    key = attrgetter(field)
    fetch = partial(engine.state.list_chains, where)
    listed = yield from without_own(where, fetch, page.request(kind), key, _chain_is_own)
    return page.build(kind, listed.rows, key, engine.jobs.chain_from_row, listed.stopped_at)


def without_own(
    where: JobFilter,
    fetch: Callable[[PageRequest], Program[Listed[Row]]],
    request: PageRequest,
    key: Callable[[Row], str],
    own: Callable[[Row], bool],
) -> Program[Listed[Row]]:
    """A page without the jobs and chains of the library itself, unless the filter names them.

    They are few. Where there are some, more rows are read, so that the page is full.
    """
    listed = yield from fetch(request)
    if _names_own(where) or not any(map(own, listed.rows)):
        return listed
    kept, read = list[Row](), 0
    while True:
        kept += [row for row in listed.rows if not own(row)]
        read += len(listed.rows)
        if len(kept) >= request.limit:
            return Listed(kept[: request.limit])
        if listed.stopped_at is not None or len(listed.rows) < request.limit:
            return Listed(kept, listed.stopped_at)
        end = key(listed.rows[-1])
        if read >= request.examine:
            return Listed(kept, end)
        listed = yield from fetch(replace(request, after=end))


def _names_own(where: JobFilter) -> bool:
    named = (where.job_ids, where.chain_ids, where.keys)
    return any(ids is not None for ids in named) or any(map(is_own, (*(where.types or ()), *(where.chain_types or ()))))


def _job_is_own(row: JobRow) -> bool:
    return is_own(row.type_name)


def _chain_is_own(row: ChainRow) -> bool:
    return is_own(row.first.type_name)


def stats(engine: Engine, limit: int | None, since: datetime | Duration | None) -> Program[list[TypeStats]]:
    """Without the library's own types. With `since`, also those of which jobs were completed."""
    found = {each.job_type: each for each in (yield from engine.state.stats(limit=limit)) if not is_own(each.job_type)}
    if since is not None:
        lately = yield from history(engine, None, since, None)
        for name, points in lately.types.items():
            took = sum((point.took for point in points), Histogram())
            if took.count or name in found:
                found[name] = replace(found.get(name, TypeStats(name)), took=took)
    return sorted(found.values(), key=lambda each: each.job_type)


def _place_in_chain(row: JobRow) -> str:
    return f"{row.chain_id}/{row.chain_index}"


def list_chain_jobs(
    engine: Engine, chain_id: str, type_name: str | None, page: PageQuery
) -> Program[Page[JobRecord[Any]]]:
    if type_name is not None:
        yield from get_chain(engine, chain_id, type_name)
    rows = yield from engine.state.list_chain_jobs(chain_id, page.request("chain-jobs"))
    return page.build("chain-jobs", rows, lambda row: str(row.chain_index), engine.jobs.record)


def list_blocked_jobs(
    engine: Engine, chain_id: str, type_name: str | None, page: PageQuery
) -> Program[Page[JobRecord[Any]]]:
    if type_name is not None:
        yield from get_chain(engine, chain_id, type_name)
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
        self,
        kind: str,
        rows: Sequence[Row],
        key: Callable[[Row], str],
        item: Callable[[Row], Item],
        stopped_at: str | None = None,
    ) -> Page[Item]:
        shown = rows[: self._limit]
        end = key(shown[-1]) if len(rows) > len(shown) else stopped_at
        return Page([item(row) for row in shown], None if end is None else self._encode(kind, end))

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
        if kind in ("chain-jobs", "jobs-by-chain", "audit") and not _INDEX.fullmatch(key.rpartition("/")[2]):
            what = "the number of a record" if kind == "audit" else "a position in a chain"
            raise InvalidCursor(f"{cursor!r} is not a cursor: {key[:20]!r} is not {what}")
        return key


def ended_chains(engine: Engine, chain_ids: Sequence[str]) -> Program[list[str]]:
    """Those of the chains that have ended or are gone."""
    rows = yield from engine.state.get_chains(chain_ids)
    return [
        chain_id for chain_id, row in zip(chain_ids, rows, strict=True) if row is None or row.current.status in TERMINAL
    ]
