"""Queries. What a database needs an index for is a filter over all rows here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import TypeVar

from queuert.adapters.memory.command import read
from queuert.adapters.memory.tables import Tables
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.listings import ChainFilter, JobFilter, Listed, PageRequest, row_matches
from queuert.records.model import Available, BlockerRow, ChainRow, JobRow, TypeStats, at_most
from queuert.records.pauses import in_the_way, is_paused, lanes_of, sooner

Place = TypeVar("Place", int, str, tuple[str, int])
Row = TypeVar("Row")


class Reading:
    @read
    def get_jobs(self, tables: Tables, ids: Sequence[str]) -> list[JobRow | None]:
        return [tables.jobs.get(job_id) for job_id in ids]

    @read
    def get_chains(self, tables: Tables, ids: Sequence[str], *, lock: bool = False) -> list[ChainRow | None]:  # noqa: ARG002
        return [tables.chain(chain_id) for chain_id in ids]

    @read
    def next_available_in(self, tables: Tables, types: Sequence[str], queues: Sequence[str] = ()) -> Available:
        lanes = lanes_of(types, queues)
        paused = in_the_way(tables.pauses_now(), lanes)
        free = {name for name, queue in lanes if not is_paused(paused, name, queue)}
        moments = [at for _, at, job_id in tables.pending if tables.jobs[job_id].type_name in free]
        next_in = max(0.0, (min(moments) - tables.now).total_seconds()) if moments else None
        return Available(sooner(next_in, paused, tables.now), bool(tables.unblocking), paused)

    @read
    def list_jobs(self, tables: Tables, where: JobFilter, page: PageRequest) -> Listed[JobRow]:
        rows = ((row, _matches(tables, where, row, row)) for row in tables.jobs.values())
        if where.by_chain:
            after = page.chain_position()
            return _listed([((row.chain_id, row.chain_index), row, ok) for row, ok in rows], page, after, _position)
        return _listed([(row.id, row, ok) for row, ok in rows], page, page.after, str)

    @read
    def list_chains(self, tables: Tables, where: ChainFilter, page: PageRequest) -> Listed[ChainRow]:
        blocking = {each.chain_id for blockers in tables.blockers.values() for each in blockers}
        found: list[tuple[str, ChainRow, bool]] = []
        for current in tables.jobs.values():
            if current.continued_to is not None:
                continue  # only the last job of a chain is its current one
            first = tables.jobs[current.chain_id]
            matches = _matches(tables, where, first, current) and not (where.root_only and first.id in blocking)
            found.append((current.id if where.by_current else first.id, ChainRow(first, current), matches))
        return _listed(found, page, page.after, str)

    @read
    def list_chain_jobs(self, tables: Tables, chain_id: str, page: PageRequest) -> list[JobRow]:
        return _page([(row.chain_index, row) for row in tables.chain_jobs(chain_id)], page, page.chain_index())

    @read
    def list_blocked_jobs(self, tables: Tables, chain_id: str, page: PageRequest) -> list[JobRow]:
        return _page([(job_id, tables.jobs[job_id]) for job_id in tables.dependents(chain_id)], page, page.after)

    @read
    def failed_attempts(self, tables: Tables, job_id: str) -> list[FailedAttempt]:
        return list(tables.attempts.get(job_id, ()))

    @read
    def job_blockers(self, tables: Tables, job_ids: Sequence[str]) -> list[list[BlockerRow]]:
        return [tables.blocker_rows(job_id) for job_id in job_ids]

    @read
    def stats(self, tables: Tables, *, limit: int | None = None) -> list[TypeStats]:
        by_type: dict[str, list[JobRow]] = {}
        for row in tables.jobs.values():
            if row.status in ("blocked", "pending", "running", "failed"):
                by_type.setdefault(row.type_name, []).append(row)
        return [_type_stats(tables, limit, *each) for each in sorted(by_type.items())]


def _matches(tables: Tables, where: JobFilter, first: JobRow, current: JobRow) -> bool:
    """A job, or a chain by its first and its current job."""
    if where.job_ids is not None and not _has_job(tables, where, current):
        return False
    if where.keys is not None and not any(
        tables.keys.get((current.chain_type, key)) == current.chain_id for key in where.keys
    ):
        return False
    return row_matches(where, first, current)


def _has_job(tables: Tables, where: JobFilter, current: JobRow) -> bool:
    jobs = [current] if not isinstance(where, ChainFilter) else tables.chain_jobs(current.chain_id)
    return any(job.id in (where.job_ids or ()) for job in jobs)


def _listed(
    rows: Iterable[tuple[Place, Row, bool]],
    page: PageRequest,
    after: Place | None,
    key: Callable[[Place], str],
) -> Listed[Row]:
    """Rows with their sort keys, and whether they match: those of the page."""
    ordered = _after([(place, (place, row, matches)) for place, row, matches in rows], page, after)
    bound = max(page.examine, page.limit)
    found = [row for _, row, matches in ordered[:bound] if matches]
    ended = len(found) >= page.limit or len(ordered) <= bound
    return Listed(found[: page.limit], None if ended else key(ordered[bound - 1][0]))


def _position(place: tuple[str, int]) -> str:
    return f"{place[0]}/{place[1]}"


def _page(found: Iterable[tuple[Place, Row]], page: PageRequest, after: Place | None) -> list[Row]:
    return _after(found, page, after)[: page.limit]


def _after(found: Iterable[tuple[Place, Row]], page: PageRequest, after: Place | None) -> list[Row]:
    """The rows whose sort keys come after the cursor, in their order."""
    descending = page.order == "desc"
    rows = sorted(found, key=itemgetter(0), reverse=descending)
    if after is not None:
        rows = [each for each in rows if (each[0] < after if descending else each[0] > after)]
    return [row for _, row in rows]


def _type_stats(tables: Tables, limit: int | None, name: str, rows: Sequence[JobRow]) -> TypeStats:
    statuses = [row.status for row in rows]
    waiting_since = min((row.scheduled_at for row in rows if tables.is_due(row)), default=None)
    return TypeStats(
        name,
        blocked=at_most(limit, statuses.count("blocked")),
        pending=at_most(limit, statuses.count("pending")),
        limited=at_most(limit, sum(tables.is_due(row) and row.lane is not None for row in rows)),
        running=at_most(limit, statuses.count("running")),
        failed=at_most(limit, statuses.count("failed")),
        oldest_ready_age=None if waiting_since is None else (tables.now - waiting_since).total_seconds(),
    )
