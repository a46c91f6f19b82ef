"""Queries. Listings scan the ids in order: what a database needs an index for is a filter here."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TypeVar

from queuert.adapters.memory.view import View
from queuert.errors import InvalidCursor
from queuert.model import BlockerRow, ChainFilter, ChainRow, JobFilter, JobRow, PageRequest, TypeStats

T = TypeVar("T")


def get_jobs(view: View, ids: Sequence[str]) -> list[JobRow | None]:
    return [view.job(job_id) for job_id in ids]


def get_chains(view: View, ids: Sequence[str]) -> list[ChainRow | None]:
    return [_chain(view, chain_id) for chain_id in ids]


def next_available_in(view: View, types: Sequence[str], now: datetime) -> float | None:
    moments = [view.next_due(type_name, now) for type_name in set(types)]
    first = min((moment for moment in moments if moment is not None), default=None)
    return None if first is None else max(0.0, (first - now).total_seconds())


def list_jobs(view: View, where: JobFilter, page: PageRequest) -> list[JobRow]:
    def pick(job_id: str) -> JobRow | None:
        row = view.job(job_id)
        if row is None or not _matches(where, row.type_name, row.status, row.created_at):
            return None
        return row

    return _page(view.ids() if where.ids is None else sorted(set(where.ids)), page, pick)


def list_chains(view: View, where: ChainFilter, page: PageRequest) -> list[ChainRow]:
    """By the chain's id, or by the current job's id if filtered by status; in both cases that is a job's id."""
    by_current = where.status is not None
    wanted = None if where.ids is None else set(where.ids)

    def pick(job_id: str) -> ChainRow | None:
        row = view.job(job_id)
        if row is None or (row.continued_to is not None if by_current else row.chain_index != 0):
            return None
        chain = view.chain(row.chain_id)
        if chain is None or (wanted is not None and row.chain_id not in wanted):
            return None
        if not _matches(where, chain.first.type_name, chain.current.status, chain.first.created_at):
            return None
        return None if where.root_only and any(True for _ in view.dependents(row.chain_id)) else chain

    return _page(view.ids(), page, pick)


def list_chain_jobs(view: View, chain_id: str, page: PageRequest) -> list[JobRow]:
    after = None if page.after is None else _chain_index(page.after)
    rows = list(view.chain_jobs(chain_id)) if _chain(view, chain_id) is not None else []
    if page.order == "desc":
        rows.reverse()
        rows = [row for row in rows if after is None or row.chain_index < after]
    else:
        rows = [row for row in rows if after is None or row.chain_index > after]
    return rows[: page.limit]


def list_blocked_jobs(view: View, chain_id: str, page: PageRequest) -> list[JobRow]:
    return _page(sorted(view.dependents(chain_id)), page, view.job)


def job_blockers(view: View, job_ids: Sequence[str]) -> list[list[BlockerRow]]:
    return [list(view.blockers(job_id)) for job_id in job_ids]


def stats(view: View, now: datetime) -> list[TypeStats]:
    counts: dict[str, dict[str, int]] = {}
    oldest: dict[str, datetime] = {}
    for row in view.open_or_failed():
        name = row.type_name
        of_type = counts.setdefault(name, {})
        of_type[row.status] = of_type.get(row.status, 0) + 1
        if row.status == "pending" and row.scheduled_at <= now:
            oldest[name] = min(row.scheduled_at, oldest.get(name, now))
    return [
        TypeStats(
            name,
            blocked=of_type.get("blocked", 0),
            pending=of_type.get("pending", 0),
            running=of_type.get("running", 0),
            failed=of_type.get("failed", 0),
            oldest_ready_age=(now - oldest[name]).total_seconds() if name in oldest else None,
        )
        for name, of_type in sorted(counts.items())
    ]


def _chain(view: View, chain_id: str) -> ChainRow | None:
    chain = view.chain(chain_id)
    return None if chain is None or chain.first.chain_index != 0 else chain


def _matches(where: JobFilter, type_name: str, status: str, created_at: datetime) -> bool:
    return (
        (where.type_name is None or type_name == where.type_name)
        and (where.status is None or status == where.status)
        and (where.created_after is None or created_at > where.created_after)
        and (where.created_before is None or created_at < where.created_before)
    )


def _page(keys: Sequence[str], page: PageRequest, pick: Callable[[str], T | None]) -> list[T]:
    """What `pick` makes of the sorted keys after the cursor, without the Nones, until the page is full."""
    if page.order == "asc":
        positions = range(0 if page.after is None else bisect_right(keys, page.after), len(keys))
    else:
        positions = range((len(keys) if page.after is None else bisect_left(keys, page.after)) - 1, -1, -1)
    found: list[T] = []
    for position in positions:
        if len(found) >= page.limit:
            break
        item = pick(keys[position])
        if item is not None:
            found.append(item)
    return found


def _chain_index(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise InvalidCursor(f"{text!r} is no position in a chain")
    return int(text)
