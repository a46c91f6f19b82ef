"""Deleting what has been kept long enough, in small steps: other writers wait meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.deleting import Deleting
from queuert.adapters.sqlite.operations.rows import Row, micros, moment
from queuert.ports.program import Program
from queuert.records.retention import (
    LOOK_AGAIN_NEEDED,
    NOTED_COUNTED,
    KeepPolicy,
    Pruned,
    PruneRequest,
    Retention,
    TypeRetention,
    Walked,
    look_again,
    verdict,
    walk_behind,
    walk_until,
)

Note = tuple[str, int, str | None, str | None, str | None]
"""A chain, when to look at it again, the type and key of one that is gone, and the type of one that
is to be archived."""
NEVER = 1 << 62
"""After all times."""


class Pruning(Deleting):
    def store_policies(self, policies: Sequence[KeepPolicy]) -> Program[list[str]]:
        if not policies:
            return []
        items = [
            (p.chain_type, p.completed, p.failed, p.cancelled, p.expired, int(p.archived), p.months) for p in policies
        ]
        known = {kept.policy.chain_type: kept.policy for kept in (yield from self.policies())}
        if all(known.get(policy.chain_type) == policy for policy in policies):
            return []  # and so the write lock is not needed
        # In a transaction, so that the process knows the commit as its own.
        rows = yield from together(self._store(items))
        changed = {row[0] for row in rows}
        return [policy.chain_type for policy in policies if policy.chain_type in changed]

    def _store(self, items: Sequence[Sequence[Any]]) -> Program[list[Row]]:
        rows: list[Row] = yield self.statement("prune.store", policies=array(items), now=self.now())
        return rows

    def retention(self) -> Program[Retention]:
        types: list[TypeRetention] = []
        for each in (yield from self.policies()):
            if each.policy.archived:
                ((waiting,),) = yield self.statement(
                    "archive.count", type=each.policy.chain_type, counted=NOTED_COUNTED
                )
                each = replace(each, waiting=waiting)
            types.append(each)
        state = yield from self._progress(NOTED_COUNTED)
        return Retention(
            types,
            state.noted,
            _moment(state.pruned_at),
            _moment(state.lap_began_at),
            None if state.lap_type is not None else _moment(state.lap_ended_at),
        )

    def prune(self, request: PruneRequest) -> Program[Pruned]:
        return together(self._prune(request))

    def policies(self) -> Program[list[TypeRetention]]:
        rows: list[Row] = yield self.statement("prune.policies")
        return [
            TypeRetention(
                KeepPolicy(row[0], row[1], row[2], row[3], row[4], bool(row[5]), row[6]),
                moment(row[7]),
                row[8],
                archive_error=row[9],
                archive_failed_at=_moment(row[10]),
            )
            for row in rows
        ]

    def _progress(self, counted: int) -> Program[_Progress]:
        """`counted`: up to how many notes are counted."""
        rows: list[Row] = yield self.statement("prune.state", counted=counted)
        return _Progress(*rows[0])

    def _prune(self, request: PruneRequest) -> Program[Pruned]:
        began = time.monotonic()
        now = self.now()
        kept = yield from self.policies()
        policies = {each.policy.chain_type: each.policy for each in kept}
        noted: list[Row] = yield self.statement("prune.noted", now=now, limit=request.limit)
        turn: list[str] = [row[0] for row in noted]
        walk = yield from self._walk(kept, request, request.limit - len(turn), now)
        turn += walk.found
        behind = (now - noted[-1][3]) / 1e6 if len(noted) == request.limit else walk.behind
        state = yield from self._progress(0)
        lap, state = yield from self._lap(policies, request, state, now)

        judged = yield from self.judge([*turn, *lap], policies, now)
        due, notes, in_turn = list[str](), list[Note](), set(turn)
        for chain_id, found in judged.items():
            if found.what == "due":
                due.append(chain_id)
            elif found.what == "archive":
                notes.append((chain_id, NEVER, None, None, found.type_name))
            elif found.what == "later" and chain_id in in_turn:
                notes.append((chain_id, micros(found.at), None, None, None))
        needed = yield from self.still_needed(due)
        doomed = sorted(set(due) - needed)
        for chain_id in needed & in_turn:
            again = look_again(judged[chain_id].created_at, moment(now), LOOK_AGAIN_NEEDED)
            notes.append((chain_id, micros(again), None, None, None))

        if noted:
            yield self.statement("prune.strike_out", chains=array([row[0] for row in noted]))
        gone = [(chain_type, key, chain_id) for chain_id, chain_type, key, _ in noted if key is not None]
        if gone:
            yield self.statement("prune.forget_keys", keys=array(gone), now=now)
        counts: list[Row] = []
        if doomed:
            chains = array(doomed)
            counts = yield self.statement("prune.count", chains=chains)
            # Those that waited to be archived before another policy was stored.
            ((to_archive,),) = yield self.statement("archive.any")
            if lap or to_archive:
                yield self.statement("prune.strike_out", chains=chains)
            notes += yield from self.delete_prunable(chains, now)
        if notes:
            yield self.statement("prune.note", notes=array(notes))
        if turn or lap or state.changed:
            yield self.statement("prune.progress", now=now, **state.stored())
        return Pruned(
            {type_name: number for type_name, number, _ in counts},
            sum(jobs for _, _, jobs in counts),
            len(turn) + len(lap),
            more=len(turn) >= request.limit,
            lap=state.lap_type is not None,
            took=time.monotonic() - began,
            behind=behind,
            kept=walk.kept,
        )

    def judge(
        self, chain_ids: Sequence[str], policies: Mapping[str, KeepPolicy], now: int
    ) -> Program[dict[str, _Judged]]:
        """Of those that exist."""
        rows: list[Row] = yield self.statement("prune.chains", ids=array(chain_ids))
        judged: dict[str, _Judged] = {}
        for chain_id, type_name, created_at, status, ended_at in rows:
            begun = moment(created_at)
            found = verdict(policies.get(type_name), status, begun, _moment(ended_at), moment(now))
            judged[chain_id] = _Judged(type_name, begun, found.what, found.at)
        return judged

    def delete_prunable(self, chains: str, now: int) -> Program[list[Note]]:
        """Delete chains, as an `array`. Returns the notes of keys that outlive them."""
        rows: list[Row] = yield self.statement("prune.outlive", chains=chains, now=now)
        yield self.statement("prune.keys", chains=chains)
        yield from self.delete_jobs(chains)
        return [(chain_id, until, chain_type, key, None) for chain_id, until, chain_type, key in rows]

    def _walk(self, kept: Iterable[TypeRetention], request: PruneRequest, limit: int, now: int) -> Program[Walked]:
        found: list[str] = []
        for each in kept:
            until = walk_until(each.policy, moment(now), exact=request.exact)
            if until is None or len(found) >= limit:
                continue
            name = each.policy.chain_type
            rows: list[Row] = yield self.statement(
                "prune.walk", type=name, after=each.walked or "", until=until, limit=limit - len(found)
            )
            if rows:
                yield self.statement("prune.walked", type=name, walked=rows[-1][0])
                found += [row[0] for row in rows]
                if len(found) == limit:
                    return Walked(found, walk_behind(found[-1], until), each.policy.shortest or 0.0)
        return Walked(found)

    def _lap(
        self, policies: Iterable[str], request: PruneRequest, state: _Progress, now: int
    ) -> Program[tuple[list[str], _Progress]]:
        """The next chains of the lap, and where it is then."""
        if request.lap_every is None:
            return [], state
        ended = state.lap_ended_at
        begins = request.restart or (
            state.lap_type is None and (ended is None or ended <= now - round(request.lap_every * 1_000_000))
        )
        if begins:
            state = state._replace(lap_type="", lap_id="", lap_began_at=now, changed=True)
        if state.lap_type is None:
            return [], state
        found: list[str] = []
        for name in policies:
            if name < state.lap_type:
                continue
            after = state.lap_id if name == state.lap_type else ""
            limit = request.limit - len(found)
            rows: list[Row] = yield self.statement("prune.lap", type=name, after=after or "", limit=limit)
            found += [row[0] for row in rows]
            if rows and len(found) == request.limit:
                return found, state._replace(lap_type=name, lap_id=found[-1], changed=True)
        return found, state._replace(lap_type=None, lap_id=None, lap_ended_at=now, changed=True)

    def still_needed(self, due: Sequence[str]) -> Program[set[str]]:
        """Those that a job of another chain needs. A chain that stays may need others of them."""
        kept: set[str] = set()
        left = list(due)
        while left:
            chains = array(left)
            waiting: list[Row] = yield self.statement("delete_chains.waiting", chains=chains)
            freeing: list[Row] = yield self.statement("prune.unblocking", chains=chains)
            needed = {row[0] for row in (*waiting, *freeing)}
            if not needed:
                break
            kept |= needed
            left = [chain_id for chain_id in left if chain_id not in needed]
        return kept


class _Judged(NamedTuple):
    type_name: str
    created_at: datetime
    what: str
    at: datetime


class _Progress(NamedTuple):
    """How far it is. Times are microseconds."""

    noted: int
    pruned_at: int | None
    lap_type: str | None
    lap_id: str | None
    lap_began_at: int | None
    lap_ended_at: int | None
    changed: bool = False

    def stored(self) -> dict[str, str | int | None]:
        return {name: getattr(self, name) for name in ("lap_type", "lap_id", "lap_began_at", "lap_ended_at")}


def _moment(value: int | None) -> datetime | None:
    return None if value is None else moment(value)
