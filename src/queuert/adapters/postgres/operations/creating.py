"""Storing jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuert.adapters.postgres.command import SEPARATOR
from queuert.adapters.postgres.operations.base import BaseOperations, distinct
from queuert.adapters.postgres.rows import Row, chain_of, raise_problem
from queuert.base.arguments import seconds
from queuert.base.ids import is_uuid
from queuert.errors import BlockerNotFound
from queuert.ports.program import Program
from queuert.records.model import NOW, BlockerRef, ChainRow, Created, NewJob


class Creating(BaseOperations):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        if not jobs:
            return []
        if _are_plain(jobs):
            return (yield from self._begin_chains(jobs))
        keyed = any(job.dedup is not None for job in jobs)
        rows: list[Row] = yield self.statement(
            "create_jobs.create_keyed" if keyed else "create_jobs.create",
            types=[job.type_name for job in jobs],
            chains=[job.chain_id for job in jobs],
            chain_types=[job.chain_type for job in jobs],
            indexes=[job.chain_index for job in jobs],
            **columns_of(jobs),
            **(_keys_of(jobs) if keyed else _NO_KEYS),
            **edges_of(jobs, {job.id: place for place, job in _first_jobs(jobs)}, earlier=True),
        )
        if rows and rows[0][4] is not None:
            raise_problem(rows[0][4])
        stored = {row[0]: row for row in rows if row[3] is None}
        # By the job's position in the call: the chain that has its key.
        holders: dict[int, ChainRow | None] = {
            row[5]: None if row[6] is None else chain_of(row[6:]) for row in rows if row[3] is not None
        }
        again: dict[int, Created] = {
            row[5]: Created(row[3], row[3], row[1], ready=False, pruned=True)
            for row in rows
            if row[3] is not None and row[1] is not None
        }
        gone = [place for place, holder in sorted(holders.items()) if holder is None and place not in again]
        if gone:
            # The chain that had the key was deleted after we found it: the key is free.
            made = yield from self.create_jobs([jobs[place - 1] for place in gone])
            again |= zip(gone, made, strict=True)
        return [
            again.get(place) or _created(job, stored.get(job.id), holders.get(place))
            for place, job in enumerate(jobs, 1)
        ]

    def replace_waiting(self, jobs: Sequence[NewJob]) -> Program[list[ChainRow]]:
        if not jobs:
            return []
        columns = {name: value for name, value in columns_of(jobs).items() if not name.endswith("traces")}
        rows: list[Row] = yield self.statement("create_jobs.replace", windows=_windows_of(jobs), **columns)
        chains = {chain.first.id: chain for chain in map(chain_of, rows)}
        return [chains[job.id] for job in jobs]

    def _begin_chains(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        first = jobs[0]
        if len(jobs) == 1 and first.lane is None:
            ((problem,),) = yield self.statement(
                "create_jobs.begin_one",
                id=first.id,
                type=first.type_name,
                priority=first.priority,
                input=first.input.decode(),
            )
        else:
            ((problem,),) = yield self.statement(
                "create_jobs.begin",
                ids=",".join([job.id for job in jobs]),
                type=first.type_name,
                priority=first.priority,
                inputs=SEPARATOR.join([job.input.decode() for job in jobs]),
                lanes=None if first.lane is None else SEPARATOR.join([job.lane or "" for job in jobs]),
            )
        if problem is not None:
            raise_problem(problem)
        return [Created(job.id, job.id, "pending", ready=True) for job in jobs]


def _are_plain(jobs: Sequence[NewJob]) -> bool:
    """Whether all start chains of one type and are due at once, with nothing special about them but
    their input.
    """
    type_name, priority, limited = jobs[0].type_name, jobs[0].priority, jobs[0].lane is not None
    for job in jobs:
        if (
            job.type_name != type_name
            or job.priority != priority
            or job.schedule is not NOW
            or job.chain_id != job.id
            or job.chain_type != type_name
            or job.chain_index != 0
            or job.blockers
            or job.dedup is not None
            or job.deadline is not None
            or job.trace_context is not None
            or job.chain_trace_context is not None
            or (job.lane is not None) != limited
            or (job.lane is not None and SEPARATOR in job.lane)
            or job.weight is not None
        ):
            return False
    return True


def columns_of(jobs: Sequence[NewJob], prefix: str = "") -> dict[str, list[Any]]:
    """What new jobs have in common with continuations, as parameters."""
    return {
        f"{prefix}ids": [job.id for job in jobs],
        f"{prefix}inputs": [job.input.decode() for job in jobs],
        f"{prefix}priorities": [job.priority for job in jobs],
        f"{prefix}at": [job.schedule.at for job in jobs],
        f"{prefix}after": [job.schedule.after for job in jobs],
        f"{prefix}deadline_at": [job.deadline and job.deadline.at for job in jobs],
        # Seconds from now, where the deadline is no fixed time. Without either, the deadline is
        # now.
        f"{prefix}deadline_after": [None if job.deadline is None else job.deadline.after or 0.0 for job in jobs],
        f"{prefix}traces": [job.trace_context for job in jobs],
        f"{prefix}chain_traces": [job.chain_trace_context for job in jobs],
        f"{prefix}lanes": [job.lane for job in jobs],
        f"{prefix}weights": [job.weight for job in jobs],
    }


_NO_KEYS: dict[str, list[Any]] = {"keys": [], "key_rules": [], "key_windows": [], "key_excludes": []}


def _keys_of(jobs: Sequence[NewJob]) -> dict[str, list[Any]]:
    keys = [job.dedup for job in jobs]
    return {
        "keys": [key and key.key for key in keys],
        "key_rules": [job.collapse or (key and key.scope) for job, key in zip(jobs, keys, strict=True)],
        "key_windows": _windows_of(jobs),
        "key_excludes": [",".join(distinct(key.exclude)) if key else None for key in keys],
    }


def _windows_of(jobs: Sequence[NewJob]) -> list[float | None]:
    keys = [job.dedup for job in jobs]
    return [None if key is None or key.window is None else seconds(key.window, "window") for key in keys]


def edges_of(jobs: Sequence[NewJob], going_on: Mapping[str, int], *, earlier: bool) -> dict[str, list[Any]]:
    """The edges from these jobs to the chains they wait for, each once, as parameters.

    Jobs are named by their position in the call. `going_on` has the position at which this call
    starts or continues a chain; if `earlier`, only positions before the job itself count.
    """
    edges: list[tuple[int, int | None, BlockerRef]] = []
    for place, job in enumerate(jobs, 1):
        # A chain that is named with two types has the wrong type once: then nothing is stored.
        blockers: dict[tuple[str, str], BlockerRef] = {}
        for blocker in job.blockers:
            if not is_uuid(blocker.chain_id):
                raise BlockerNotFound(job.id, blocker.chain_id)
            blockers.setdefault((blocker.chain_id, blocker.chain_type), blocker)
        for (chain_id, _), blocker in blockers.items():
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
    """Positions and jobs that start a chain.

    Of several with one id the first comes last: it is the one that counts.
    """
    return [(place, job) for place, job in reversed(list(enumerate(jobs, 1))) if job.chain_index == 0]


def _created(job: NewJob, row: Row | None, existing: ChainRow | None) -> Created:
    if existing is not None:
        chain_id, replaced = existing.first.id, job.collapse in ("replace", "trail")
        status = existing.current.status
        return Created(chain_id, chain_id, status, ready=False, existing=existing, replaced=replaced)
    assert row is not None
    return Created(job.id, job.chain_id, row[1], row[2])
