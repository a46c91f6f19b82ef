"""What clients do with schedules. Each change is made in the transaction of the caller."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from secrets import randbelow
from typing import Any

from msgspec.structs import replace

from queuert.base.times import MICROSECOND
from queuert.engine.engine import Engine
from queuert.engine.operations.reading import PageQuery
from queuert.engine.operations.starting import store
from queuert.engine.transaction import Hooks
from queuert.errors import InvalidArgument, JobIdExists, ScheduleNotFound
from queuert.features.schedules.firing import stored_job
from queuert.features.schedules.planning import MILLISECOND, counted_anew, resumed, stopped
from queuert.features.schedules.schedule import Schedule, schedule_from
from queuert.features.schedules.stored import Definition, State, definition_of, encode, state_of
from queuert.features.schedules.times import After, Tick, Times, from_data
from queuert.jobs.chain import Chain
from queuert.ports.program import Program
from queuert.records.listings import Page
from queuert.records.model import When
from queuert.records.schedules import MAX_INCARNATION, ScheduleRow, chain_id, read_chain_id, whole_milliseconds

MOST_BACKFILLED = 10_000
"""Ticks of one `backfill`."""

Change = Callable[[ScheduleRow | None, datetime], ScheduleRow | None]
"""The row as it is to be stored, from the row as it is (None: there is none) and the time. None:
nothing is to be changed."""


def change(engine: Engine, hooks: Hooks, name: str, make: Change) -> Program[Schedule]:
    """Read, decide, write, and begin again if another has written in between. Locks the row, if it
    is changed.
    """
    while True:
        look = yield from engine.state.get_schedules([name])
        known = look.rows[0]
        row = make(known, look.now)
        if row is None:
            assert known is not None
            return schedule_from(known, look.now)
        (saved,) = yield from engine.state.save_schedules([row])
        if saved:
            engine.notifications(hooks).add("schedule_changed", name)
            return schedule_from(replace(row, version=row.version + 1), look.now)


def found(row: ScheduleRow | None, name: str) -> ScheduleRow:
    if row is None:
        raise ScheduleNotFound(name)
    return row


def put(engine: Engine, hooks: Hooks, name: str, definition: Definition, times: Times) -> Program[Schedule]:
    def make(row: ScheduleRow | None, now: datetime) -> ScheduleRow | None:
        if row is not None and row.declared:
            raise InvalidArgument(
                f"the schedule {name!r} is declared by workers: change it there, or choose another name"
            )
        return put_row(row, name, definition, times, now)

    return change(engine, hooks, name, make)


def put_row(
    row: ScheduleRow | None,
    name: str,
    definition: Definition,
    times: Times,
    now: datetime,
    *,
    declared: bool = False,
) -> ScheduleRow | None:
    """The row with this definition; None if it has it already. Other times count from now: nothing
    of the past fires.
    """
    data, by_function = encode(definition), definition.type is None
    if row is None:
        state = State(created_at=now, horizon=now)
        incarnation = 1 + randbelow(MAX_INCARNATION - 1)
        new = ScheduleRow(
            name=name,
            incarnation=incarnation,
            by_function=by_function,
            declared=declared,
            definition=data,
            state=encode(state),
        )
        return counted_anew(new, state, times, now)
    state = state_of(row)
    if row.definition == data and row.by_function == by_function and state.disabled_at is None:
        return None
    before = definition_of(row).times
    same_times = before == definition.times and state.disabled_at is None
    was_ticking = before.get("kind") != "after"
    state = replace(state, disabled_at=None, undeclared_for=0.0, undeclared_at=None)
    state = replace(state, error=None, error_at=None, errors=0, failing=())
    row = replace(row, definition=data, by_function=by_function)
    if not same_times:
        waits = isinstance(times, After) and (state.waiting_since is not None or was_ticking)
        since = (state.waiting_since or now) if waits and state.last_chains else None
        state = replace(state, horizon=max(state.horizon, now), queued=None, waiting_since=since)
        row = counted_anew(row, state, times, now)
    elif state_of(row).errors or state_of(row).failing:  # do not wait for the next try: it may be repaired
        row = replace(row, due_at=now)
    paused = state.paused_at is not None
    return stopped(row, state, now) if paused else replace(row, state=encode(state))


def pause(engine: Engine, hooks: Hooks, name: str, until: When | None) -> Program[Schedule]:
    def make(row: ScheduleRow | None, now: datetime) -> ScheduleRow:
        known = found(row, name)
        state = state_of(known)
        end = None if until is None else until.at or now + timedelta(seconds=until.after or 0.0)
        return stopped(known, replace(state, paused_at=state.paused_at or now, paused_until=end), now)

    return change(engine, hooks, name, make)


def resume(engine: Engine, hooks: Hooks, name: str) -> Program[Schedule]:
    def make(row: ScheduleRow | None, now: datetime) -> ScheduleRow | None:
        known = found(row, name)
        state, times = state_of(known), from_data(definition_of(known).times)
        if state.paused_at is None:
            return None
        state = resumed(state, times, now, name)
        return counted_anew(known, state, times, now) if state.disabled_at is None else stopped(known, state, now)

    return change(engine, hooks, name, make)


def trigger(engine: Engine, hooks: Hooks, name: str) -> Program[Chain[Any] | None]:
    """Start its job now. A function is called by a worker soon."""
    look = yield from engine.state.get_schedules([name])
    row = found(look.rows[0], name)
    at = whole_milliseconds(look.now)
    if row.by_function:
        yield from change(engine, hooks, name, lambda row, now: _triggered(found(row, name), now))
        return None
    definition = definition_of(row)
    while True:
        job_id = chain_id(row.incarnation, at, 0, triggered=True)
        try:
            (chain,) = yield from store(engine, hooks, [stored_job(definition, job_id)])
            return chain
        except JobIdExists:  # it was triggered twice in a millisecond
            at += MILLISECOND


def _triggered(row: ScheduleRow, now: datetime) -> ScheduleRow:
    state, at = state_of(row), whole_milliseconds(now)
    if state.triggered_at is not None:
        at = max(at, state.triggered_at + MILLISECOND)
    state = replace(state, triggers=(*state.triggers, at), triggered_at=at)
    return replace(row, due_at=now, state=encode(state))


def backfill(engine: Engine, hooks: Hooks, name: str, start: datetime, end: datetime) -> Program[int]:
    """Fire the ticks from `start` to before `end`, also those that have fired and whose chains are
    gone. Returns how many there are.
    """
    if start >= end:
        raise InvalidArgument(f"backfill() takes a start before its end, got {start} and {end}")
    number = 0

    def make(row: ScheduleRow | None, now: datetime) -> ScheduleRow | None:
        nonlocal number
        known = found(row, name)
        times = from_data(definition_of(known).times)
        if isinstance(times, After):
            raise InvalidArgument(f"{name!r} has no ticks to backfill: it runs {times}")
        # The future fires by itself.
        ticks = times.last_ticks(min(end - MICROSECOND, now), MOST_BACKFILLED + 1, after=start - MICROSECOND, name=name)
        number = len(ticks)
        if number > MOST_BACKFILLED:
            raise InvalidArgument(
                f"{name!r} has more than {MOST_BACKFILLED} ticks between {start} and {end}: backfill them in parts"
            )
        if not ticks:
            return None
        state, last = state_of(known), ticks[-1].at + MICROSECOND
        state = replace(state, backfills=(*state.backfills, (ticks[0].at, last)))
        return replace(known, due_at=now, state=encode(state))

    yield from change(engine, hooks, name, make)
    return number


def delete(engine: Engine, name: str) -> Program[Schedule | None]:
    look = yield from engine.state.get_schedules([name])
    gone = yield from engine.state.delete_schedules([name])
    return schedule_from(gone[0], look.now) if gone else None


def get(engine: Engine, name: str) -> Program[Schedule | None]:
    look = yield from engine.state.get_schedules([name])
    row = look.rows[0]
    return None if row is None else schedule_from(row, look.now)


def of_chain(engine: Engine, chain: str) -> Program[Schedule | None]:
    known = read_chain_id(chain)
    row = None if known is None else (yield from engine.state.find_schedule(known.incarnation))
    return None if row is None else (yield from get(engine, row.name))


def list_page(engine: Engine, page: PageQuery) -> Program[Page[Schedule]]:
    request = page.request("schedules")
    look = yield from engine.state.list_schedules(request.limit, request.after)
    rows = [row for row in look.rows if row is not None]
    return page.build("schedules", rows, lambda row: row.name, lambda row: schedule_from(row, look.now))


def preview(engine: Engine, name: str, count: int) -> Program[list[Tick]]:
    look = yield from engine.state.get_schedules([name])
    row = found(look.rows[0], name)
    times = from_data(definition_of(row).times)
    return times.ticks(max(look.now, state_of(row).horizon), count, name=name)
