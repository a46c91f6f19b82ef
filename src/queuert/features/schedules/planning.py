"""What is to be done with a schedule that is due: which of its ticks fire, and how it goes on.

Nothing here reads a clock or a database. So the rules of overlap and catch-up can be tested alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from msgspec.structs import replace

from queuert.base.times import MICROSECOND
from queuert.features.schedules.stored import Definition, State, definition_of, encode, state_of
from queuert.features.schedules.times import After, Cron, Every, Tick, Times, from_data
from queuert.features.schedules.zones import zone
from queuert.records.schedules import ScheduleRow, chain_id, whole_milliseconds

ON_TIME = timedelta(minutes=1)
"""A tick that is at most this late is not missed: `catch_up="none"` fires it."""
FIRED_AT_ONCE = 50
"""Ticks of one schedule that fire in one transaction."""
LOOK_AGAIN = (timedelta(seconds=5), timedelta(minutes=1))
"""How often a schedule that waits for its chains to end is looked at, at least and at most. Usually
a message comes first."""
RETRY = (timedelta(seconds=5), timedelta(minutes=5))
"""After the first failure of a schedule, and at most."""
MILLISECOND = timedelta(milliseconds=1)

Chains = Mapping[str, datetime | None]
"""Those of a schedule's last chains that are stored, with the time when each ended; None for one
that has not."""


class ReadSchedule:
    """A row, read."""

    def __init__(self, row: ScheduleRow) -> None:
        self.row = row
        self.definition: Definition = definition_of(row)
        self.state: State = state_of(row)
        self.times: Times = from_data(self.definition.times)

    @property
    def asks_for_chains(self) -> bool:
        """Whether `plan` has to know what happened to the last chains."""
        return bool(self.state.last_chains) and (isinstance(self.times, After) or self.definition.overlap != "allow")


@dataclass(frozen=True)
class Fire:
    """One tick that fires."""

    tick: Tick
    triggered: bool = False
    extra: bool = False
    """It is triggered by hand or backfilled: it is no run that others overlap with."""


@dataclass(frozen=True)
class Work:
    """What is to be done now, and how the schedule goes on after it."""

    read: ReadSchedule
    now: datetime
    fires: list[Fire]
    state: State
    next_at: datetime | None
    due_at: datetime | None
    skipped: list[Tick] = field(default_factory=list[Tick])

    def chain_id(self, fire: Fire, place: int) -> str:
        return chain_id(self.read.row.incarnation, fire.tick.at, place, triggered=fire.triggered)

    def done(self, chains: Sequence[Sequence[str]]) -> ScheduleRow:
        """The row to store, once each of `fires` has started these chains."""
        state, next_at, due_at = self.state, self.next_at, self.due_at
        runs = [(fire.tick, ids) for fire, ids in zip(self.fires, chains, strict=True) if not fire.extra]
        if runs:
            tick, ids = runs[-1]
            waiting_since = None if state.queued is None else self.now
            if not ids and self.read.definition.overlap == "cancel":
                # The function started nothing, so nothing overlaps: the earlier run goes on.
                state, ids = replace(state, cancelling=self.read.state.cancelling), self.read.state.last_chains
            state = replace(state, last_tick=tick.at, last_chains=tuple(ids), waiting_since=waiting_since)
            if isinstance(self.read.times, After):
                if ids:
                    state = replace(state, waiting_since=self.now)
                    next_at, due_at = None, self.now + LOOK_AGAIN[0]
                else:  # the function started nothing, so the run has ended
                    following = self.read.times.next(self.now, name=self.read.row.name)
                    next_at = due_at = None if following is None else following.at
        if state.cancelling:
            due_at = self.now
        if state.extras_after is None:
            state = replace(state, error=None, error_at=None, errors=0)
        return replace(self.read.row, next_at=next_at, due_at=due_at, state=encode(state))


def failed(row: ScheduleRow, state: State, now: datetime, error: str, *, extra: bool = False) -> ScheduleRow:
    """The row to store after a failure: it is tried again, later each time. `extra`: what failed
    was triggered by hand or backfilled. It waits alone, and the ticks go on.
    """
    errors = state.errors + 1
    again = now + min(RETRY[0] * 2 ** min(errors - 1, 20), RETRY[1])
    state = replace(state, error=error, error_at=now, errors=errors, extras_after=again if extra else None)
    return replace(row, due_at=now if extra else again, state=encode(state))


def counted_anew(row: ScheduleRow, state: State, times: Times, now: datetime) -> ScheduleRow:
    """The row with this state, its next tick counted from the horizon. `After` runs at once, or at
    its start, unless its last run has not ended.
    """
    at = due_at = None
    if not isinstance(times, After):
        tick = times.next(state.horizon, name=row.name)
        if tick is not None:
            at, due_at = tick.at, tick.due
    elif state.waiting_since is not None:
        due_at = now
    else:
        at = now if times.start is None else max(now, times.start)
        at = due_at = None if times.end is not None and at >= times.end else at
    return replace(row, next_at=at, due_at=_when_to_look(state, due_at, now), state=encode(state))


def stopped(row: ScheduleRow, state: State, now: datetime) -> ScheduleRow:
    """The row with this state, in which it is paused or disabled."""
    until = None if state.disabled_at is not None else state.paused_until
    return replace(row, due_at=_when_to_look(state, until, now), state=encode(state))


def _when_to_look(state: State, due_at: datetime | None, now: datetime) -> datetime | None:
    """At once, if there is something to do besides ticks."""
    at_once = state.triggers or state.backfills or state.cancelling
    if at_once or state.disabled_at is not None or state.paused_at is not None:
        return now if at_once else due_at
    return now if state.queued is not None else due_at


def plan(read: ReadSchedule, now: datetime, chains: Chains) -> Work:
    """What is to be done with a schedule at this time."""
    state, fires = _resumed(read.state, now), list[Fire]()
    if state.extras_after is None or state.extras_after <= now:
        state = _extras(read, replace(state, extras_after=None), fires)
    if state.disabled_at is not None or state.paused_at is not None:
        until = None if state.disabled_at is not None else state.paused_until
        return Work(read, now, fires, state, read.row.next_at, _with_extras(state, until, now))
    if isinstance(read.times, After):
        work = _plan_after(read, read.times, now, state, chains)
    else:
        work = _plan_ticks(read, read.times, now, state, chains)
    due_at = _with_extras(work.state, work.due_at, now)
    return Work(read, now, fires + work.fires, work.state, work.next_at, due_at, work.skipped)


def _resumed(state: State, now: datetime) -> State:
    """A pause that has ended by itself: what it covered does not fire."""
    until = state.paused_until
    if until is None or until > now:
        return state
    return replace(state, paused_at=None, paused_until=None, horizon=max(state.horizon, until - MICROSECOND))


def _with_extras(state: State, due_at: datetime | None, now: datetime) -> datetime | None:
    """When there is something to do, with what was triggered by hand or is to be backfilled."""
    if not (state.triggers or state.backfills):
        return due_at
    extras = state.extras_after or now
    return extras if due_at is None else min(extras, due_at)


def _extras(read: ReadSchedule, state: State, fires: list[Fire]) -> State:
    """Some of what was triggered by hand, and of what is to be backfilled."""
    name, where = read.row.name, read.times
    for at in state.triggers[:FIRED_AT_ONCE]:
        local = at if isinstance(where, After) else at.astimezone(zone(where.tz))
        fires.append(Fire(Tick(at, local, name), triggered=True, extra=True))
    state = replace(state, triggers=state.triggers[FIRED_AT_ONCE:])
    if isinstance(where, After):
        # It had ticks when they were asked for.
        state = replace(state, backfills=())
    elif state.backfills:
        (start, end), *others = state.backfills
        found = where.ticks(start - MICROSECOND, FIRED_AT_ONCE, name=name)
        chosen = [tick for tick in found if tick.at < end]
        fires += [Fire(tick, extra=True) for tick in chosen]
        if len(chosen) == FIRED_AT_ONCE:
            others = [(chosen[-1].at + MICROSECOND, end), *others]
        state = replace(state, backfills=tuple(others))
    return state


def _plan_after(read: ReadSchedule, times: After, now: datetime, state: State, chains: Chains) -> Work:
    next_at = read.row.next_at
    if state.waiting_since is not None:
        if _open(state.last_chains, chains):
            return Work(read, now, [], state, None, _look_again(state.waiting_since, now))
        # A chain that is gone has ended, too: when, is not known.
        ended = [chains.get(each) or now for each in state.last_chains]
        following = times.next(max(ended), name=read.row.name)
        state = replace(state, waiting_since=None)
        next_at = None if following is None else whole_milliseconds(following.at)
    if next_at is None or next_at > now:
        return Work(read, now, [], state, next_at, next_at)
    # The clock may have been set back since the last tick: no two have the same time.
    at = whole_milliseconds(max(next_at, state.horizon + MILLISECOND))
    return Work(read, now, [Fire(Tick(at, at, read.row.name))], replace(state, horizon=at), None, None)


def _plan_ticks(read: ReadSchedule, times: Cron | Every, now: datetime, state: State, chains: Chains) -> Work:
    name = read.row.name
    due, horizon = _due_ticks(read, times, now, state)
    wanted, skipped = _without_overlap(read, state, due, _open(state.last_chains, chains))
    following = times.next(horizon, name=name)
    next_at = None if following is None else following.at
    due_at = None if following is None else following.due
    state = replace(wanted.state, horizon=horizon, skips=state.skips + len(skipped))
    if skipped:
        state = replace(state, skipped_at=skipped[-1].at)
    if state.queued is not None:
        since = state.waiting_since or now
        state = replace(state, waiting_since=since)
        again = _look_again(since, now)
        due_at = again if due_at is None else min(due_at, again)
    elif not wanted.fires:
        state = replace(state, waiting_since=None)
    return Work(read, now, [Fire(tick) for tick in wanted.fires], state, next_at, due_at, skipped)


def _due_ticks(read: ReadSchedule, times: Cron | Every, now: datetime, state: State) -> tuple[list[Tick], datetime]:
    """The ticks that fire unless others overlap, oldest first, and how far the schedule has come
    then.
    """
    definition, name = read.definition, read.row.name
    first = times.next(state.horizon, name=name)
    if first is None or first.due > now:
        return [], state.horizon
    until = now - first.jitter  # the same for all ticks of a schedule
    number = definition.catch_up_max if definition.catch_up == "all" else 1
    found = times.last_ticks(until, number, after=state.horizon, name=name)
    within = ON_TIME.total_seconds() if definition.catch_up == "none" else definition.within
    if within is not None:
        oldest = until - timedelta(seconds=within)
        on_time = [tick for tick in found if tick.at >= oldest]
        # The horizon also passes those that do not fire.
        if not on_time:
            return [], found[-1].at
        found = on_time
    chosen = found[:FIRED_AT_ONCE]
    return chosen, chosen[-1].at


@dataclass(frozen=True)
class _Wanted:
    fires: list[Tick]
    state: State


def _without_overlap(
    read: ReadSchedule, state: State, due: list[Tick], running: Sequence[str]
) -> tuple[_Wanted, list[Tick]]:
    """Which of the ticks fire, and which are skipped, while these chains have not ended."""
    if state.queued is not None and read.definition.overlap != "queue":
        # It waited when the schedule was changed. Nothing waits any more.
        due = [_tick(read, state.queued), *due]
        state = replace(state, queued=None, waiting_since=None)
    match read.definition.overlap:
        case "skip":
            fires = [] if running else due[:1]
            return _Wanted(fires, state), due[len(fires) :]
        case "queue":
            waiting = [_tick(read, state.queued)] if state.queued is not None else []
            waiting += due
            fires = [] if running else waiting[:1]
            rest = waiting[len(fires) :]
            queued = rest[0].at if rest else None
            return _Wanted(fires, replace(state, queued=queued)), rest[1:]
        case "cancel":
            fires = due[-1:]
            if fires:
                known = dict.fromkeys([*state.cancelling, *running])
                state = replace(state, cancelling=tuple(known))
            return _Wanted(fires, state), due[:-1]
        case _:
            return _Wanted(due, state), []


def _tick(read: ReadSchedule, at: datetime) -> Tick:
    """The tick at this moment. The times may have changed since."""
    if not isinstance(read.times, After):
        found = read.times.next(at - MICROSECOND, name=read.row.name)
        if found is not None and found.at == at:
            return found
    return Tick(at, at, read.row.name)


def _open(ids: Collection[str], chains: Chains) -> list[str]:
    """Those that have not ended. One that is gone has ended."""
    return [each for each in ids if each in chains and chains[each] is None]


def _look_again(since: datetime, now: datetime) -> datetime:
    """The longer it has waited, the later."""
    shortest, longest = LOOK_AGAIN
    return now + min(max((now - since) / 10, shortest), longest)


ScheduleStatus = Literal["active", "waiting", "failing", "paused", "disabled", "ended"]


def status_of(row: ScheduleRow, state: State, now: datetime) -> ScheduleStatus:
    """See `Schedule.status`."""
    if state.disabled_at is not None:
        return "disabled"
    if state.paused_at is not None and (state.paused_until is None or state.paused_until > now):
        return "paused"
    if state.errors:
        return "failing"
    if state.waiting_since is not None:
        return "waiting"
    return "active" if row.due_at is not None else "ended"
