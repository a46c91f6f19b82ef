"""Queries by id, and figures."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.rows import Row, blocker_of, chain_of, job_of
from queuert.adapters.sqlite.store import Store, array
from queuert.model import BlockerRow, ChainRow, JobRow, TypeStats
from queuert.ports.program import Program

_NEVER = 2**63 - 1


def get_jobs(store: Store, ids: Sequence[str]) -> Program[list[JobRow | None]]:
    if not ids:
        return []
    rows: list[Row] = yield store("read.jobs", ids=array(list(dict.fromkeys(ids))))
    found = {row[0]: job_of(row) for row in rows}
    return [found.get(job_id) for job_id in ids]


def get_chains(store: Store, ids: Sequence[str]) -> Program[list[ChainRow | None]]:
    if not ids:
        return []
    rows: list[Row] = yield store("read.chains", ids=array(list(dict.fromkeys(ids))))
    found = {row[0]: chain_of(row) for row in rows}
    return [found.get(chain_id) for chain_id in ids]


def job_blockers(store: Store, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
    if not job_ids:
        return []
    rows: list[Row] = yield store("read.blockers", ids=array(list(dict.fromkeys(job_ids))))
    found: dict[str, list[BlockerRow]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(blocker_of(row))
    return [list(found.get(job_id, ())) for job_id in job_ids]


def next_available_in(store: Store, types: Sequence[str]) -> Program[float | None]:
    if not types:
        return None
    rows: list[Row] = yield store("next_available_in.earliest", types=array(types))
    due: int = rows[0][0]
    return None if due == _NEVER else max(0, due - store.now()) / 1_000_000


def stats(store: Store) -> Program[list[TypeStats]]:
    rows: list[Row] = yield store("stats.counts")
    now = store.now()
    counts: dict[str, dict[str, int]] = {}
    oldest: dict[str, int] = {}
    for name, status, number, scheduled_at in rows:
        of_type = counts.setdefault(name, {})
        of_type[status] = of_type.get(status, 0) + number
        if scheduled_at is not None and scheduled_at <= now:
            oldest[name] = min(scheduled_at, oldest.get(name, now))
    return [
        TypeStats(
            name,
            blocked=of_type.get("blocked", 0),
            pending=of_type.get("pending", 0),
            running=of_type.get("running", 0),
            failed=of_type.get("failed", 0),
            oldest_ready_age=(now - oldest[name]) / 1_000_000 if name in oldest else None,
        )
        for name, of_type in sorted(counts.items())
    ]
