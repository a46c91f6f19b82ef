"""Storing jobs."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.postgres.reading import get_chains
from queuert.adapters.postgres.rows import Row, raise_problem
from queuert.adapters.postgres.store import Store
from queuert.model import BlockerRef, ChainRow, Created, Dedup, NewJob, seconds
from queuert.ports.program import Program


def create_jobs(store: Store, jobs: Sequence[NewJob]) -> Program[list[Created]]:
    if not jobs:
        return []
    keyed = any(job.dedup is not None for job in jobs)
    edges = edges_of(jobs)
    rows: list[Row] = yield store(
        "create_jobs.create",
        ids=[job.id for job in jobs],
        types=[job.type_name for job in jobs],
        chains=[job.chain_id for job in jobs],
        chain_types=[job.chain_type for job in jobs],
        indexes=[job.chain_index for job in jobs],
        inputs=[job.input.decode() for job in jobs],
        priorities=[job.priority for job in jobs],
        at=[job.schedule.at for job in jobs],
        after=[job.schedule.after for job in jobs],
        deadline_at=[job.deadline and job.deadline.at for job in jobs],
        deadline_after=[None if job.deadline is None else job.deadline.after for job in jobs],
        traces=[job.trace_context for job in jobs],
        chain_traces=[job.chain_trace_context for job in jobs],
        keys=[job.dedup and job.dedup.key for job in jobs] if keyed else [],
        key_any=[job.dedup is not None and job.dedup.scope == "any" for job in jobs] if keyed else [],
        key_windows=[_window(job.dedup) for job in jobs] if keyed else [],
        key_excludes=[",".join(job.dedup.exclude) if job.dedup else None for job in jobs] if keyed else [],
        check_ids=True,
        **edges,
    )
    if rows and rows[0][4] is not None:
        raise_problem(rows[0][4])
    found = {row[0]: row for row in rows}
    existing = [row[3] for row in rows if row[3] is not None]
    chains: dict[str, ChainRow | None] = {}
    if existing:
        chains = dict(zip(existing, (yield from get_chains(store, existing)), strict=True))
    return [_created(job, found[job.id], chains) for job in jobs]


def edges_of(jobs: Sequence[NewJob]) -> dict[str, list[str | None]]:
    """The edges from these jobs to the chains they wait for, each once, as parameters."""
    edges: list[tuple[str, BlockerRef]] = []
    for job in jobs:
        distinct: dict[str, BlockerRef] = {}
        for blocker in job.blockers:
            distinct.setdefault(blocker.chain_id, blocker)
        edges += [(job.id, blocker) for blocker in distinct.values()]
    return {
        "edge_jobs": [job_id for job_id, _ in edges],
        "edge_chains": [blocker.chain_id for _, blocker in edges],
        "edge_types": [blocker.chain_type for _, blocker in edges],
        "edge_traces": [blocker.trace_context for _, blocker in edges],
    }


def _window(dedup: Dedup | None) -> float | None:
    return None if dedup is None or dedup.window is None else seconds(dedup.window, "window")


def _created(job: NewJob, row: Row, chains: dict[str, ChainRow | None]) -> Created:
    _, status, ready, existing, _ = row
    chain = None if existing is None else chains[existing]
    if chain is None:
        return Created(job.id, job.chain_id, status, ready)
    return Created(chain.first.id, chain.first.id, chain.current.status, ready=False, existing=chain)
