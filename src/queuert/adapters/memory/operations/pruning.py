"""Deleting what has been kept long enough."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.operations.deleting import delete_chain, needed_by_others
from queuert.adapters.memory.tables import Pruning as Progress
from queuert.adapters.memory.tables import Tables
from queuert.records.retention import (
    LOOK_AGAIN_NEEDED,
    NOTED_COUNTED,
    KeepPolicy,
    Pruned,
    PruneRequest,
    Retention,
    TypeRetention,
    Verdict,
    Walked,
    look_again,
    verdict,
    walk_behind,
    walk_until,
)


class Pruning:
    @write
    def store_policies(self, tables: Tables, policies: Sequence[KeepPolicy]) -> list[str]:
        changed: list[str] = []
        for policy in policies:
            known = tables.policies.get(policy.chain_type)
            if known is None or known.policy != policy:
                tables.policies[policy.chain_type] = TypeRetention(policy, tables.now)
                changed.append(policy.chain_type)
        return changed

    @read
    def retention(self, tables: Tables) -> Retention:
        waiting = Counter(tables.to_archive.values())
        return Retention(
            [
                replace(kept, waiting=min(waiting[name], NOTED_COUNTED))
                for name, kept in sorted(tables.policies.items())
            ],
            min(len(tables.noted), NOTED_COUNTED),
            tables.pruning.pruned_at,
            tables.pruning.lap_began_at,
            None if tables.pruning.lap is not None else tables.pruning.lap_ended_at,
        )

    @write
    def prune(self, tables: Tables, request: PruneRequest) -> Pruned:
        began = time.monotonic()
        policies = dict(sorted(tables.policies.items()))
        noted = sorted((at, chain_id) for chain_id, at in tables.noted.items() if at <= tables.now)
        turn = [chain_id for _, chain_id in noted[: request.limit]]
        walk = _walk(tables, policies.values(), request, request.limit - len(turn))
        turn += walk.found
        behind = (
            (tables.now - noted[request.limit - 1][0]).total_seconds() if len(noted) >= request.limit else walk.behind
        )
        lap, on_the_way = _lap(tables, policies.values(), request)

        step = Step(tables)
        verdicts = {chain_id: step.judge(chain_id) for chain_id in (*turn, *lap)}
        due = {chain_id for chain_id, found in verdicts.items() if found is not None and found.what == "due"}
        kept = step.still_needed(due)
        for chain_id, found in verdicts.items():
            if found is not None and found.what == "archive":
                tables.noted.pop(chain_id, None)
                tables.to_archive[chain_id] = tables.jobs[chain_id].type_name
        for chain_id in turn:
            tables.noted.pop(chain_id, None)
            found = verdicts[chain_id]
            if found is None:
                _forget_key(tables, chain_id)
            elif found.what == "later":
                tables.noted[chain_id] = found.at
                tables.to_archive.pop(chain_id, None)
            elif chain_id in kept:
                created_at = tables.jobs[chain_id].created_at
                tables.noted[chain_id] = look_again(created_at, tables.now, LOOK_AGAIN_NEEDED)
        deleted, jobs = Counter[str](), 0
        for chain_id in sorted(due - kept):
            deleted[tables.jobs[chain_id].chain_type] += 1
            jobs += len(tables.chain_jobs(chain_id))
            prune_chain(tables, chain_id)
        tables.pruning = tables.pruning._replace(pruned_at=tables.now)
        return Pruned(
            dict(sorted(deleted.items())),
            jobs,
            len(turn) + len(lap),
            more=len(turn) >= request.limit,
            lap=on_the_way,
            took=time.monotonic() - began,
            behind=behind,
            kept=walk.kept,
        )


class Step:
    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._policies = tables.policies

    def judge(self, chain_id: str) -> Verdict | None:
        """None: there is no such chain."""
        chain = self._tables.chain(chain_id)
        if chain is None:
            return None
        kept, current = self._policies.get(chain.first.type_name), chain.current
        policy = None if kept is None else kept.policy
        return verdict(policy, current.status, chain.first.created_at, current.completed_at, self._tables.now)

    def still_needed(self, chain_ids: Iterable[str]) -> set[str]:
        """Those that a job of another chain needs. A chain that stays may need others of them."""
        chosen, kept = set(chain_ids), set[str]()
        while needed := {*needed_by_others(self._tables, sorted(chosen)), *(chosen & self._tables.unblocking.keys())}:
            chosen -= needed
            kept |= needed
        return kept


def _walk(tables: Tables, policies: Iterable[TypeRetention], request: PruneRequest, limit: int) -> Walked:
    found: list[str] = []
    for kept in policies:
        until = walk_until(kept.policy, tables.now, exact=request.exact)
        if until is not None and len(found) < limit:
            ids = [each for each in _firsts(tables, kept.policy.chain_type, kept.walked) if each < until]
            ids = ids[: limit - len(found)]
            if ids:
                tables.policies[kept.policy.chain_type] = replace(kept, walked=ids[-1])
                found += ids
                if len(found) == limit:
                    return Walked(found, walk_behind(ids[-1], until), kept.policy.shortest or 0.0)
    return Walked(found)


def _lap(tables: Tables, policies: Iterable[TypeRetention], request: PruneRequest) -> tuple[list[str], bool]:
    """The next chains of the lap, and whether there are others."""
    state = tables.pruning
    if request.lap_every is None:
        return [], False
    since = tables.now - timedelta(seconds=request.lap_every)
    if not (request.restart or state.lap is not None or _is_before(state.lap_ended_at, since)):
        return [], False
    place = None if request.restart else state.lap
    if place is None:
        state = state._replace(lap_began_at=tables.now)
    found: list[str] = []
    for kept in policies:
        name = kept.policy.chain_type
        if place is None or name >= place[0]:
            after = place[1] if place is not None and name == place[0] else None
            found += (ids := _firsts(tables, name, after)[: request.limit - len(found)])
            if ids and len(found) == request.limit:
                tables.pruning = state._replace(lap=(name, ids[-1]))
                return found, True
    tables.pruning = Progress(state.pruned_at, None, state.lap_began_at, tables.now)
    return found, False


def _is_before(moment: datetime | None, other: datetime) -> bool:
    return moment is None or moment <= other


def _firsts(tables: Tables, type_name: str, after: str | None) -> list[str]:
    """The ids of chains of a type, in their order."""
    rows = (row for row in tables.jobs.values() if row.chain_index == 0 and row.type_name == type_name)
    return sorted(row.id for row in rows if after is None or row.id > after)


def prune_chain(tables: Tables, chain_id: str) -> None:
    """Delete the chain, but not yet a key that has to match for longer."""
    first, current = tables.jobs[chain_id], tables.chain_jobs(chain_id)[-1]
    key = first.chain_type, first.dedup_key or ""
    window = tables.windows.get(key)
    tables.noted.pop(chain_id, None)
    tables.to_archive.pop(chain_id, None)
    delete_chain(tables, chain_id)
    if window is not None and window.chain_id == chain_id and window.until > tables.now:
        tables.windows[key] = window._replace(ended=current.status)
        tables.noted[chain_id] = window.until


def _forget_key(tables: Tables, chain_id: str) -> None:
    """The chain is gone, and now its window has ended."""
    for key, window in list(tables.windows.items()):
        if window.chain_id == chain_id and window.until <= tables.now:
            del tables.windows[key]
