"""Which other chains `cascade` leads to, read without locks: for plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from queuert.base.statuses import OPEN
from queuert.engine.engine import Engine
from queuert.ports.program import Program
from queuert.records.listings import PageRequest
from queuert.records.model import ChainRow

MOST = 1000
"""Chains that are looked at."""

Neighbours = Callable[[Engine, str], Program[list[str]]]


def waiting_above(engine: Engine, ids: Sequence[str], most: int = MOST) -> Program[list[ChainRow]]:
    """The chains that a cancellation of these would also cancel, by id."""
    rows = yield from _reached(engine, ids, _blocked_by, most)
    return [row for row in rows if row.current.status in OPEN]


def blockers_below(engine: Engine, ids: Sequence[str], most: int = MOST) -> Program[list[ChainRow]]:
    """The chains that a deletion of these would also delete, by id."""
    return _reached(engine, ids, _blockers_of, most)


def _reached(engine: Engine, ids: Sequence[str], neighbours: Neighbours, most: int) -> Program[list[ChainRow]]:
    seen, to_visit = dict.fromkeys(ids), list(ids)
    while to_visit and len(seen) - len(ids) < most:
        for chain_id in (yield from neighbours(engine, to_visit.pop())):
            if chain_id not in seen:
                seen[chain_id] = None
                to_visit.append(chain_id)
    found = sorted(seen.keys() - set(ids))[:most]
    rows = yield from engine.state.get_chains(found)
    return [row for row in rows if row is not None]


def _blocked_by(engine: Engine, chain_id: str) -> Program[list[str]]:
    jobs = yield from engine.state.list_blocked_jobs(chain_id, PageRequest(MOST))
    return [job.chain_id for job in jobs if job.status == "blocked"]


def _blockers_of(engine: Engine, chain_id: str) -> Program[list[str]]:
    jobs = yield from engine.state.list_chain_jobs(chain_id, PageRequest(MOST))
    blockers = yield from engine.state.job_blockers([job.id for job in jobs])
    return [each.chain_id for of_job in blockers for each in of_job]
