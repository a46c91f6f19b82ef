"""Queries. What a database needs an index for is a filter over all rows here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import TypeVar

from queuert.adapters.memory.command import read
from queuert.adapters.memory.tables import Tables
from queuert.model import (
    Available,
    BlockerRow,
    ChainFilter,
    ChainRow,
    JobFilter,
    JobRow,
    PageRequest,
    Status,
    TypeStats,
)

Key = TypeVar("Key", int, str)
Row = TypeVar("Row")


class Reading:
    @read
    def get_jobs(self, tables: Tables, ids: Sequence[str]) -> list[JobRow | None]:
        return [tables.jobs.get(job_id) for job_id in ids]

    @read
    def get_chains(self, tables: Tables, ids: Sequence[str], *, lock: bool = False) -> list[ChainRow | None]:  # noqa: ARG002
        return [tables.chain(chain_id) for chain_id in ids]

    @read
    def next_available_in(self, tables: Tables, types: Sequence[str]) -> Available:
        moments = [at for _, at, job_id in tables.pending if tables.jobs[job_id].type_name in types]
        next_in = max(0.0, (min(moments) - tables.now).total_seconds()) if moments else None
        return Available(next_in, unblocking=bool(tables.unblocking))

    @read
    def list_jobs(self, tables: Tables, where: JobFilter, page: PageRequest) -> list[JobRow]:
        found = [
            (row.id, row)
            for row in tables.jobs.values()
            if _matches(where, row.id, row.type_name, row.status, row.created_at)
        ]
        return _page(found, page, page.after)

    @read
    def list_chains(self, tables: Tables, where: ChainFilter, page: PageRequest) -> list[ChainRow]:
        blocking = {each.chain_id for blockers in tables.blockers.values() for each in blockers}
        found: list[tuple[str, ChainRow]] = []
        for current in tables.jobs.values():
            if current.continued_to is not None:
                continue  # only the last job of a chain is its current one
            first = tables.jobs[current.chain_id]
            if where.root_only and first.id in blocking:
                continue
            if _matches(where, first.id, first.type_name, current.status, first.created_at):
                sort_key = first.id if where.status is None else current.id
                found.append((sort_key, ChainRow(first, current)))
        return _page(found, page, page.after)

    @read
    def list_chain_jobs(self, tables: Tables, chain_id: str, page: PageRequest) -> list[JobRow]:
        return _page([(row.chain_index, row) for row in tables.chain_jobs(chain_id)], page, page.chain_index())

    @read
    def list_blocked_jobs(self, tables: Tables, chain_id: str, page: PageRequest) -> list[JobRow]:
        return _page([(job_id, tables.jobs[job_id]) for job_id in tables.dependents(chain_id)], page, page.after)

    @read
    def job_blockers(self, tables: Tables, job_ids: Sequence[str]) -> list[list[BlockerRow]]:
        return [tables.blocker_rows(job_id) for job_id in job_ids]

    @read
    def stats(self, tables: Tables) -> list[TypeStats]:
        by_type: dict[str, list[JobRow]] = {}
        for row in tables.jobs.values():
            if row.status in ("blocked", "pending", "running", "failed"):
                by_type.setdefault(row.type_name, []).append(row)
        return [_type_stats(tables, *each) for each in sorted(by_type.items())]


def _matches(where: JobFilter, row_id: str, type_name: str, status: Status, created_at: datetime) -> bool:
    return (
        (where.ids is None or row_id in where.ids)
        and (where.type_name is None or type_name == where.type_name)
        and (where.status is None or status == where.status)
        and (where.created_after is None or created_at > where.created_after)
        and (where.created_before is None or created_at < where.created_before)
    )


def _page(found: Iterable[tuple[Key, Row]], page: PageRequest, after: Key | None) -> list[Row]:
    """The rows whose sort keys come after the cursor, in their order."""
    descending = page.order == "desc"
    rows = sorted(found, key=itemgetter(0), reverse=descending)
    if after is not None:
        rows = [each for each in rows if (each[0] < after if descending else each[0] > after)]
    return [row for _, row in rows[: page.limit]]


def _type_stats(tables: Tables, name: str, rows: Sequence[JobRow]) -> TypeStats:
    statuses = [row.status for row in rows]
    waiting_since = min((row.scheduled_at for row in rows if tables.is_due(row)), default=None)
    return TypeStats(
        name,
        blocked=statuses.count("blocked"),
        pending=statuses.count("pending"),
        running=statuses.count("running"),
        failed=statuses.count("failed"),
        oldest_ready_age=None if waiting_since is None else (tables.now - waiting_since).total_seconds(),
    )
