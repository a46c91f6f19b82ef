"""Limits by key: what is declared, what is set at run time, and how the keys are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.lanes import Lane, Lanes, change_of
from queuert.adapters.sqlite.operations.rows import Row, micros, moment
from queuert.ports.program import Program
from queuert.records.limits import (
    COUNTED,
    NAMED,
    SEPARATOR,
    Change,
    DeclaredLimit,
    KnownLimit,
    LimitRow,
    changed,
    lane_of,
    split_lane,
)
from queuert.records.model import JobRow


class Limiting(Lanes):
    def declare_limits(
        self, types: Sequence[str], declared: Sequence[DeclaredLimit], *, alive_for: float
    ) -> Program[list[KnownLimit]]:
        if not types:
            return []
        return (yield from together(self._declare_limits(types, declared, alive_for)))

    def _declare_limits(
        self, types: Sequence[str], declared: Sequence[DeclaredLimit], alive_for: float
    ) -> Program[list[KnownLimit]]:
        if declared:
            items = [
                (each.name, each.digest, msgspec.json.encode(each.rule).decode(), array(each.types))
                for each in declared
            ]
            now = self.now()
            alive = now - round(alive_for * 1_000_000)
            yield self.statement("limits.declare", declared=array(items), now=now, alive=alive)
        rows: list[tuple[str, str]] = yield self.statement("limits.known")
        found: dict[str, set[str]] = {}
        for name, of in rows:
            found.setdefault(name, set()).update(msgspec.json.decode(of))
        return [KnownLimit(name, tuple(sorted(of))) for name, of in found.items() if not of.isdisjoint(types)]

    def set_limit(self, name: str, key: str | None, change: Change) -> Program[LimitRow]:
        return (yield from together(self._set_limit(name, key, change)))

    def _set_limit(self, name: str, key: str | None, change: Change) -> Program[LimitRow]:
        lane = _text(name, key)
        rows: list[Row] = yield self.statement("limits.changed", lane=lane)
        before = change_of.decode(rows[0][0]) if rows else {}
        yield self.statement("limits.change", lane=lane, rule=array({**before, **change}))
        return (yield from self._limit_row(lane))

    def get_limit(self, name: str, key: str | None) -> Program[LimitRow]:
        return self._limit_row(_text(name, key))

    def _limit_row(self, lane: str) -> Program[LimitRow]:
        running = yield from self.running_lanes()
        ((waiting,),) = yield self.statement("limits.count", lane=lane, counted=COUNTED)
        (row,) = yield from self._limit_rows([(lane, waiting)], running)
        return row

    def jobs_before(self, job: JobRow) -> Program[int]:
        place = {"priority": job.priority, "at": micros(job.scheduled_at), "id": job.id}
        ((number,),) = yield self.statement("limits.before", lane=job.lane, **place, counted=COUNTED)
        return int(number)

    def clear_limit(self, name: str, key: str | None) -> Program[bool]:
        rows: list[Row] = yield self.statement("limits.clear", lane=_text(name, key))
        return bool(rows)

    def list_limits(self, limit: int, after: tuple[str, str | None] | None) -> Program[list[LimitRow]]:
        running = yield from self.running_lanes()
        rows: list[tuple[str, int]] = yield self.statement(
            "limits.list",
            after="" if after is None else _text(*after),
            running=array(list(running)),
            counted=COUNTED,
            number=limit,
        )
        return (yield from self._limit_rows(rows, running))

    def _limit_rows(self, found: Sequence[tuple[str, int]], running: dict[str, list[str]]) -> Program[list[LimitRow]]:
        now, listed = self.now(), list[LimitRow]()
        rows: list[Row] = yield self.statement("limits.states", lanes=array([lane for lane, _ in found]))
        states = {row[0]: row for row in rows}
        for text, waiting in found:
            name, key = split_lane(text)
            _, _, begun, begun_at, closed, holder, change = states[text]
            rule = yield from self.limit_rule(name)
            if SEPARATOR not in text:
                number = sum(len(each) for lane, each in running.items() if split_lane(lane)[0] == name)
                listed.append(LimitRow(name, None, rule, change is not None, number))
                continue
            lane = Lane(
                text,
                None,
                begun or 0,
                begun_at,
                closed,
                holder,
                changed(rule, change and change_of.decode(change)),
                room=1,
            )
            if lane.rule.ordered:
                yield from self.hold_lane(lane)
            if closed is not None and closed > now:
                lane.opens_at = closed
            else:
                lane.room = 1
                yield from self.heed_rates([lane], now)
            opens_at = None if lane.opens_at is None else moment(lane.opens_at)
            of_lane, held = running.get(text, []), lane.holder if lane.rule.ordered else None
            row = LimitRow(name, key, lane.rule, change is not None, len(of_lane), waiting, opens_at, held)
            listed.append(replace(row, held_by=tuple(of_lane[:NAMED])))
        return listed


def _text(name: str, key: str | None) -> str:
    """A lane; for all keys, the name of the limit."""
    return name if key is None else lane_of(name, key)
