"""Which other chains `cascade` leads to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, get_args

from queuert.base.statuses import OPEN
from queuert.engine.engine import Engine
from queuert.errors import InvalidArgument
from queuert.ports.program import Program
from queuert.records.listings import PageRequest
from queuert.records.model import ChainRow

CancelCascade: TypeAlias = Literal["dependents", "blockers"]
"""Which way a cancellation goes on: to the chains that wait for these, or to those that they wait
for."""

MOST = 1000
"""Chains that are looked at."""

Neighbours = Callable[[Engine, str], Program[list[str]]]


def check_cancel_cascade(cascade: object) -> bool | CancelCascade:
    if isinstance(cascade, bool) or cascade in get_args(CancelCascade):
        return cascade  # type: ignore[return-value]
    raise InvalidArgument(
        f'cancel(…, cascade=…) takes "dependents" (the same as True), "blockers" or False, got {cascade!r}'
    )


def waiting_above(engine: Engine, ids: Sequence[str], most: int = MOST) -> Program[list[ChainRow]]:
    """The chains that wait for these, which a cancellation would also cancel, by id. No locks."""
    rows = yield from _reached(engine, ids, _blocked_by, most)
    return [row for row in rows if row.current.status in OPEN]


def blockers_below(engine: Engine, ids: Sequence[str], most: int = MOST) -> Program[list[ChainRow]]:
    """The chains that a deletion of these would also delete, by id. No locks."""
    return _reached(engine, ids, _blockers_of, most)


def needed_by_none_else(engine: Engine, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow]]:
    """The chains that these wait for, at every depth, and that have not ended, by id. A chain that
    another one waits for, too, is left out, with what it waits for.

    With `lock`, these chains and the ones found are locked until the transaction ends, all at once:
    so no other chain begins to wait for one of them.
    """
    rows: dict[str, ChainRow] = {}
    level = list(ids)
    while level:
        found = [row for row in (yield from engine.state.get_chains(level)) if row is not None]
        rows.update({row.first.id: row for row in found if row.current.status in OPEN})
        waiting = [row.current.id for row in found if row.current.status == "blocked"]
        blockers = yield from engine.state.job_blockers(waiting)
        level = list(
            dict.fromkeys(each.chain_id for of_job in blockers for each in of_job if each.chain_id not in rows)
        )
        level = [chain_id for chain_id in level if chain_id not in ids]
    if lock:
        yield from engine.state.get_chains(list({**dict.fromkeys(ids), **rows}), lock=True)
    waited_for: dict[str, set[str] | None] = {}
    for chain_id in sorted(rows.keys() - set(ids)):
        jobs = yield from engine.state.list_blocked_jobs(chain_id, PageRequest(MOST))
        waited_for[chain_id] = {job.chain_id for job in jobs if job.status == "blocked"} if len(jobs) < MOST else None
    while left := [each for each, by in waited_for.items() if by is None or not by <= waited_for.keys() | set(ids)]:
        for chain_id in left:
            del waited_for[chain_id]
    return [rows[chain_id] for chain_id in waited_for]


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
