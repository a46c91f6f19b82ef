"""Storing jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuert.adapters.postgres.command import SEPARATOR
from queuert.adapters.postgres.operations.rows import Row, chain_of, raise_problem
from queuert.adapters.postgres.operations.store import Store
from queuert.model import NOW, BlockerRef, ChainRow, Created, Dedup, NewJob, seconds
from queuert.ports.program import Program


def create_jobs(store: Store, jobs: Sequence[NewJob]) -> Program[list[Created]]:
    if not jobs:
        return []
    if all(_is_plain(job, jobs[0]) for job in jobs):
        return (yield from _begin_chains(store, jobs))
    keyed = any(job.dedup is not None for job in jobs)
    rows: list[Row] = yield store(
        "create_jobs.create_keyed" if keyed else "create_jobs.create",
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
        deadline_after=[deadline_after(job) for job in jobs],
        traces=[job.trace_context for job in jobs],
        chain_traces=[job.chain_trace_context for job in jobs],
        keys=[job.dedup and job.dedup.key for job in jobs] if keyed else [],
        key_any=[job.dedup is not None and job.dedup.scope == "any" for job in jobs] if keyed else [],
        key_windows=[_window(job.dedup) for job in jobs] if keyed else [],
        key_excludes=[",".join(job.dedup.exclude) if job.dedup else None for job in jobs] if keyed else [],
        **edges_of(jobs, {job.id: place for place, job in _first_jobs(jobs)}, earlier=True),
    )
    if rows and rows[0][4] is not None:
        raise_problem(rows[0][4])
    stored = {row[0]: row for row in rows if row[3] is None}
    # By the job's place in the call: the chain that has its key.
    holders: dict[int, ChainRow | None] = {
        row[5]: None if row[6] is None else chain_of(row[6:]) for row in rows if row[3] is not None
    }
    gone = [place for place, holder in sorted(holders.items()) if holder is None]
    again: dict[int, Created] = {}
    if gone:
        # Somebody has deleted the chain that held the key since we found it: its key is free.
        made = yield from create_jobs(store, [jobs[place - 1] for place in gone])
        again = dict(zip(gone, made, strict=True))
    return [
        again.get(place) or _created(job, stored.get(job.id), holders.get(place)) for place, job in enumerate(jobs, 1)
    ]


def _is_plain(job: NewJob, first: NewJob) -> bool:
    """Whether it begins a chain and is to run at once, with nothing special about it but its input."""
    return (
        job.type_name == first.type_name
        and job.priority == first.priority
        and job.schedule is NOW
        and job.chain_id == job.id
        and job.chain_type == job.type_name
        and job.chain_index == 0
        and not job.blockers
        and job.dedup is None
        and job.deadline is None
        and job.trace_context is None
        and job.chain_trace_context is None
    )


def _begin_chains(store: Store, jobs: Sequence[NewJob]) -> Program[list[Created]]:
    ((problem,),) = yield store(
        "create_jobs.begin",
        ids=",".join([job.id for job in jobs]),
        type=jobs[0].type_name,
        priority=jobs[0].priority,
        inputs=SEPARATOR.join([job.input.decode() for job in jobs]),
    )
    if problem is not None:
        raise_problem(problem)
    return [Created(job.id, job.id, "pending", ready=True) for job in jobs]


def deadline_after(job: NewJob) -> float | None:
    """Seconds from now, where the deadline is no fixed time. One that says neither is now."""
    return None if job.deadline is None else job.deadline.after or 0.0


def edges_of(jobs: Sequence[NewJob], going_on: Mapping[str, int], *, earlier: bool) -> dict[str, list[Any]]:
    """The edges from these jobs to the chains they wait for, each once, as parameters.

    Jobs are named by their place among those of the call. `going_on` tells at which place a chain begins or goes on by
    this very call; if `earlier`, only those before the job itself count.
    """
    edges: list[tuple[int, int | None, BlockerRef]] = []
    for place, job in enumerate(jobs, 1):
        # A chain that is named with two types is the wrong type once: then nothing is stored.
        distinct: dict[tuple[str, str], BlockerRef] = {}
        for blocker in job.blockers:
            distinct.setdefault((blocker.chain_id, blocker.chain_type), blocker)
        for (chain_id, _), blocker in distinct.items():
            within = going_on.get(chain_id)
            if within is not None and (within >= place if earlier else within == place):
                within = None
            edges.append((place, within, blocker))
    return {
        "edge_places": [place for place, _, _ in edges],
        "edge_chains": [blocker.chain_id for _, _, blocker in edges],
        "edge_types": [blocker.chain_type for _, _, blocker in edges],
        "edge_within": [within for _, within, _ in edges],
        "edge_traces": [blocker.trace_context for _, _, blocker in edges],
    }


def _first_jobs(jobs: Sequence[NewJob]) -> list[tuple[int, NewJob]]:
    """Places and jobs that begin a chain, the first of those with one id last: it is the one that counts."""
    return [(place, job) for place, job in reversed(list(enumerate(jobs, 1))) if job.chain_index == 0]


def _window(dedup: Dedup | None) -> float | None:
    return None if dedup is None or dedup.window is None else seconds(dedup.window, "window")


def _created(job: NewJob, row: Row | None, existing: ChainRow | None) -> Created:
    if existing is not None:
        return Created(existing.first.id, existing.first.id, existing.current.status, ready=False, existing=existing)
    assert row is not None
    return Created(job.id, job.chain_id, row[1], row[2])
