"""Lanes: which limited jobs may begin, and in which order lanes take turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from queuert.adapters.memory.tables import LaneState, Tables
from queuert.base.times import EPOCH, MICROSECOND
from queuert.records.limits import (
    ALIVE_FOR,
    Begins,
    LimitRule,
    Turn,
    changed,
    merge_turns,
    split_lane,
    take_turns,
    weight_in,
)
from queuert.records.model import JobRow
from queuert.records.pauses import PauseTarget

_CLEAR = LaneState()

Place = tuple[Any, ...]


class Room(NamedTuple):
    """How many jobs of a lane may begin now, and which job alone, if one holds the lane. Otherwise
    when the next one may, if that is known.
    """

    number: int
    only: str | None = None
    opens_at: datetime | None = None


def rule_of(tables: Tables, lane: str) -> LimitRule:
    name, key = split_lane(lane)
    return changed(limit_rule(tables, name), tables.changes.get((name, key)))


def limit_rule(tables: Tables, name: str) -> LimitRule:
    """What holds for all keys: the newest declaration that workers still have, and what was set at
    run time.
    """
    known = [each for (limit, _), each in tables.declared.items() if limit == name]
    alive = tables.now - timedelta(seconds=ALIVE_FOR)
    newest = max(
        known, key=lambda each: (each.last_seen_at >= alive, each.first_seen_at, each.limit.digest), default=None
    )
    rule = LimitRule() if newest is None else newest.limit.rule
    return changed(rule, tables.changes.get((name, None)))


def lines(tables: Tables) -> dict[str, list[JobRow]]:
    """Lane → its jobs that are due, in their order."""
    found: dict[str, list[JobRow]] = {}
    for _, at, job_id in tables.pending:
        row = tables.jobs[job_id]
        if row.lane is not None and at <= tables.now:
            found.setdefault(row.lane, []).append(row)
    return found


def running_in(tables: Tables, lane: str) -> list[JobRow]:
    return [row for job_id in tables.held if (row := tables.jobs[job_id]).lane == lane]


def holder_of(tables: Tables, lane: str) -> JobRow | None:
    """The job that holds an ordered lane: it has begun, and is not completed, cancelled, expired or
    deleted. A continuation with the same key keeps the lane.
    """
    row = tables.jobs.get(tables.lanes.get(lane, _CLEAR).holder or "")
    while row is not None and row.lane == lane:
        if row.status in ("blocked", "pending", "running", "failed"):
            return row
        row = tables.jobs.get(row.continued_to or "")
    return None


def room_of(tables: Tables, lane: str, rule: LimitRule, waiting: int) -> Room:
    state, holder = tables.lanes.get(lane, _CLEAR), None
    if state.closed_until is not None and state.closed_until > tables.now:
        return Room(0, None, state.closed_until)
    for pause in tables.pauses_now():
        if pause.target == PauseTarget("key", lane):
            return Room(0, None, pause.until)
    if rule.ordered and (row := holder_of(tables, lane)) is not None:
        if row.status != "pending" or row.scheduled_at > tables.now:
            return Room(0)
        holder = row.id
    number = waiting
    if rule.concurrency is not None:
        number = min(number, rule.concurrency - len(running_in(tables, lane)))
    allowed, opens = state.begins.room(rule.rate, _micros(tables.now))
    if allowed is not None:
        number = min(number, allowed)
    return Room(max(0, number), holder, None if opens is None else EPOCH + opens * MICROSECOND)


def close(tables: Tables, lane: str, until: datetime) -> None:
    """No job of the lane begins before then."""
    state = tables.lanes.get(lane, _CLEAR)
    later = until if state.closed_until is None else max(until, state.closed_until)
    tables.lanes[lane] = state._replace(closed_until=later)


class Choice(NamedTuple):
    """The jobs that a claim takes of the limits. `more`: others could be taken, too. `opens_at`:
    when a lane with waiting jobs opens.
    """

    jobs: list[JobRow]
    more: bool
    opens_at: datetime | None


def choose(
    tables: Tables,
    pairs: Iterable[tuple[str, str]],
    number: int,
    plain: Sequence[Place],
    place_of: Callable[[JobRow], Place | None],
    take: Callable[[JobRow], bool],
) -> Choice:
    """Let the lanes take turns. `pairs`: types, and the limits that their jobs may be stored with.
    `plain`: the places of jobs without a limit, which compete. `take` makes a job running.
    """
    served, due = set(pairs), lines(tables)
    in_turn: list[list[tuple[Place, str, JobRow]]] = []
    opening: list[datetime] = []
    weights: dict[str, float] = {}
    for name in sorted({name for _, name in served}):
        turns: list[Turn] = []
        mine = {lane: state.tag for lane, state in tables.lanes.items() if split_lane(lane)[0] == name}
        floor = min((tag for tag in mine.values() if tag is not None), default=0.0)
        for lane in sorted({*mine, *(lane for lane in due if split_lane(lane)[0] == name)}):
            rule, line = rule_of(tables, lane), due.get(lane, [])
            room = room_of(tables, lane, rule, len(line))
            if room.opens_at is not None and line:
                opening.append(room.opens_at)
            tag = mine.get(lane)
            if room.number:
                weight = weights[lane] = weight_in(rule, tables.weights.get(line[0].id))
                tag = floor + 1 / weight if tag is None else tag
                eligible = [
                    (place, row)
                    for row in line
                    if room.only in (None, row.id)
                    and (row.type_name, name) in served
                    and (place := place_of(row)) is not None
                ]
                turns.append(Turn(lane, tag, weight, eligible[: min(room.number, number)]))
            tables.lanes[lane] = tables.lanes.get(lane, _CLEAR)._replace(tag=tag if room.number else None)
        in_turn.append(take_turns(turns))
    chosen, more = merge_turns(in_turn, plain, number, take)
    for lane, row in chosen:
        _begun(tables, lane, row, weights[lane])
    left = lines(tables)
    for lane in list(tables.lanes):
        _tidy(tables, lane, len(left.get(lane, ())))
    return Choice([row for _, row in chosen], more, min(opening, default=None))


def _begun(tables: Tables, lane: str, row: JobRow, weight: float) -> None:
    rule, state = rule_of(tables, lane), tables.lanes[lane]
    tables.lanes[lane] = state._replace(
        tag=None if state.tag is None else state.tag + 1 / weight,
        begins=state.begins.after(1, rule.rate, _micros(tables.now)),
        holder=row.id if rule.ordered else None,
    )


def _tidy(tables: Tables, lane: str, waiting: int) -> None:
    """Close a lane that has nothing to begin, and forget what need not be known."""
    state, rule = tables.lanes[lane], rule_of(tables, lane)
    if state.tag is not None and not room_of(tables, lane, rule, waiting).number:
        state = state._replace(tag=None)
    if state.closed_until is not None and state.closed_until <= tables.now:
        state = state._replace(closed_until=None)
    if state.holder is not None and holder_of(tables, lane) is None:
        state = state._replace(holder=None)
    if rule.rate is None or not state.begins.last or _passed(state.begins, rule.rate.per, tables.now):
        state = state._replace(begins=Begins())
    if state == _CLEAR:
        del tables.lanes[lane]
    else:
        tables.lanes[lane] = state


def _passed(begins: Begins, per: float, now: datetime) -> bool:
    return begins.last[-1] < _micros(now) - round(per * 1_000_000)


def _micros(moment: datetime) -> int:
    return (moment - EPOCH) // MICROSECOND
