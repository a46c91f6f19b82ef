"""What is to be done with a schedule that is due: which of its ticks fire, and how it goes on.

Nothing here reads a clock or a database. So the rules of overlap and catch-up can be tested alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Literal

from msgspec.structs import replace

from queuert.base.times import MICROSECOND
from queuert.features.schedules.stored import Definition, FailingTick, State, definition_of, encode, state_of
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
MOST_FAILING = 100
"""Ticks that fail and wait apart from the others. If there are so many, no more are backfilled
before one of them succeeds: the function fails for all."""
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

    @property
    def ticks_are_apart(self) -> bool:
        """Whether a tick that fails is left for later, and the next one fires."""
        definition = self.definition
        return not isinstance(self.times, After) and (definition.overlap, definition.catch_up) == ("allow", "all")


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
    chains: Chains
    fires: list[Fire]
    """Those that are extra come first."""
    state: State
    before_ticks: State
    """How it goes on if an ordinary tick fails."""
    next_at: datetime | None
    due_at: datetime | None
    skipped: list[Tick] = field(default_factory=list[Tick])
    has_looked: bool = True
    """Ordinary ticks were looked at."""

    def chain_id(self, fire: Fire, place: int) -> str:
        return chain_id(self.read.row.incarnation, fire.tick.at, place, triggered=fire.triggered)

    def cut(self, extras: int, ticks: int) -> Work:
        """The same with the first extra fires and the first ordinary ones only."""
        return plan(self.read, self.now, self.chains, extras=extras, ticks=ticks)

    def alone(self) -> Work:
        """The same with the first fire only."""
        return self.cut(1, 0) if self.fires[0].extra else self.cut(0, 1)

    def done(self, chains: Sequence[Sequence[str]], errors: Mapping[int, str] = MappingProxyType({})) -> ScheduleRow:
        """The row to store, once each of `fires` has started these chains. `errors`: why some of
        them have failed, by position. Each is tried again for itself, later each time.
        """
        read, now = self.read, self.now
        state, next_at, due_at = self.state, self.next_at, self.due_at
        aside = [(fire, errors[place]) for place, fire in enumerate(self.fires) if place in errors]
        stops = None if read.ticks_are_apart else next((error for fire, error in aside if not fire.extra), None)
        if stops is not None:
            aside = [(fire, error) for fire, error in aside if fire.extra]
            state = replace(self.before_ticks, error=stops, error_at=now, errors=read.state.errors + 1)
            next_at, due_at = read.row.next_at, _retry_at(now, state.errors)
        elif self.has_looked:
            state = replace(state, error=None, error_at=None, errors=0)
            runs = [
                (fire.tick, ids)
                for place, (fire, ids) in enumerate(zip(self.fires, chains, strict=True))
                if not fire.extra and place not in errors
            ]
            if runs:
                state, next_at, due_at = self._run(state, *runs[-1])
        if state.cancelling:
            due_at = now
        if aside:
            state = _set_aside(state, aside, read.state.failing, now)
        return replace(read.row, next_at=next_at, due_at=_with_extras(state, due_at, now), state=encode(state))

    def _run(self, state: State, tick: Tick, ids: Sequence[str]) -> tuple[State, datetime | None, datetime | None]:
        """How it goes on after the last ordinary tick, which has started these chains."""
        next_at, due_at, times = self.next_at, self.due_at, self.read.times
        waiting_since = None if state.queued is None else self.now
        if not ids and self.read.definition.overlap == "cancel":
            # The function started nothing, so nothing overlaps: the earlier run goes on.
            state, ids = replace(state, cancelling=self.read.state.cancelling), self.read.state.last_chains
        state = replace(state, last_tick=tick.at, last_chains=tuple(ids), waiting_since=waiting_since)
        if isinstance(times, After):
            if ids:
                state = replace(state, waiting_since=self.now)
                next_at, due_at = None, self.now + LOOK_AGAIN[0]
            else:  # the function started nothing, so the run has ended
                following = times.next(self.now, name=self.read.row.name)
                next_at = due_at = None if following is None else following.at
        return state, next_at, due_at


def _set_aside(
    state: State, failed_fires: Sequence[tuple[Fire, str]], before: Sequence[FailingTick], now: datetime
) -> State:
    """The state in which these are tried again, each at its own time."""
    tries = {(each.at, each.triggered): each.errors for each in before}
    triggers, backfills, failing = list(state.triggers), list(state.backfills), list(state.failing)
    for fire, error in failed_fires:
        at, triggered = fire.tick.at, fire.triggered
        errors = tries.get((at, triggered), 0) + 1
        if triggered:
            triggers.append(at)
        elif (at, at + MICROSECOND) not in backfills:
            backfills.append((at, at + MICROSECOND))
        retry_at = _retry_at(now, errors)
        failing.append(
            FailingTick(at=at, triggered=triggered, error=error[:200], error_at=now, errors=errors, retry_at=retry_at)
        )
    known = {(each.at, each.triggered): each for each in failing}
    return replace(state, triggers=tuple(triggers), backfills=tuple(backfills), failing=tuple(known.values()))


def _retry_at(now: datetime, errors: int) -> datetime:
    """Later after each error."""
    first, most = RETRY
    return now + min(first * int(2 ** min(errors - 1, 20)), most)


def failed(row: ScheduleRow, state: State, now: datetime, error: str) -> ScheduleRow:
    """The row to store after a failure of the schedule: it is tried again, later each time."""
    state = replace(state, error=error, error_at=now, errors=state.errors + 1)
    return replace(row, due_at=_retry_at(now, state.errors), state=encode(state))


def counted_anew(row: ScheduleRow, state: State, times: Times, now: datetime) -> ScheduleRow:
    """The row with this state, its next tick counted from the horizon. `After` runs at once, or at
    its start, unless its last run has not ended.
    """
    at = due_at = None
    if not isinstance(times, After):
        tick = _next(times, state, row.name)
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


def resumed(state: State, times: Times, end: datetime, name: str) -> State:
    """The state after a pause until `end`, which is no tick that fires. What was due before the
    pause still fires.
    """
    begin = state.paused_at
    state = replace(state, paused_at=None, paused_until=None)
    if begin is not None and begin < end and not isinstance(times, After):
        first = _next(times, state, name)
        if first is not None and first.due <= begin:
            return replace(state, gaps=(*state.gaps, (begin - first.jitter, end)))
    return replace(state, horizon=max(state.horizon, end), gaps=())


def plan(
    read: ReadSchedule, now: datetime, chains: Chains, *, extras: int = FIRED_AT_ONCE, ticks: int = FIRED_AT_ONCE
) -> Work:
    """What is to be done with a schedule at this time. `extras`, `ticks`: how many of what is
    extra, and of its ordinary ticks, may fire.
    """
    state, fires, row = read.state, list[Fire](), read.row
    if state.paused_until is not None and state.paused_until <= now:  # the pause has ended by itself
        state = resumed(state, read.times, state.paused_until - MICROSECOND, row.name)
    state = _extras(read, state, fires, now, extras)
    if state.disabled_at is not None or state.paused_at is not None:
        until = None if state.disabled_at is not None else state.paused_until
        return Work(read, now, chains, fires, state, state, row.next_at, _with_extras(state, until, now))
    if not ticks:
        return Work(read, now, chains, fires, state, state, row.next_at, now, has_looked=False)
    if isinstance(read.times, After):
        planned = _plan_after(read, read.times, now, state, chains)
    else:
        planned = _plan_ticks(read, read.times, now, state, chains, ticks)
    due_at = _with_extras(planned.state, planned.due_at, now)
    fires += map(Fire, planned.ticks)
    return Work(read, now, chains, fires, planned.state, state, planned.next_at, due_at, planned.skipped)


@dataclass(frozen=True)
class _Planned:
    """What is to be done about ordinary ticks."""

    ticks: list[Tick]
    state: State
    next_at: datetime | None
    due_at: datetime | None
    skipped: list[Tick] = field(default_factory=list[Tick])


def _with_extras(state: State, due_at: datetime | None, now: datetime) -> datetime | None:
    """When there is something to do, with what was triggered by hand or is to be backfilled."""
    number = len(state.triggers) + len(state.backfills)
    full = len(state.failing) >= MOST_FAILING
    again = [each.retry_at for each in state.failing]
    at = [now] if number > len(again) and not full else again if number else []
    return min([*at, *([] if due_at is None else [due_at])], default=None)


def _extras(read: ReadSchedule, state: State, fires: list[Fire], now: datetime, limit: int) -> State:
    """Some of what was triggered by hand, and of what is to be backfilled."""
    name, where = read.row.name, read.times
    failing = {(each.at, each.triggered): each for each in state.failing}
    waiting = {key for key, each in failing.items() if each.retry_at > now}
    triggers, backfills = list[datetime](), list[tuple[datetime, datetime]]()
    for at in state.triggers:
        if len(fires) == limit or (at, True) in waiting:
            triggers.append(at)
        else:
            local = at if isinstance(where, After) else at.astimezone(zone(where.tz))
            fires.append(Fire(Tick(at, local, name), triggered=True, extra=True))
    # `After` had ticks when they were asked for.
    for start, end in () if isinstance(where, After) else state.backfills:
        left = limit - len(fires)
        fails = end - start == MICROSECOND and (start, False) in failing
        waits = (start, False) in waiting if fails else len(failing) >= MOST_FAILING
        if waits or not left:
            backfills.append((start, end))
            continue
        found = where.ticks(start - MICROSECOND, left, name=name)
        chosen = [tick for tick in found if tick.at < end]
        fires += [Fire(tick, extra=True) for tick in chosen]
        if len(chosen) == left and chosen[-1].at + MICROSECOND < end:
            backfills.append((chosen[-1].at + MICROSECOND, end))
    kept = {*((at, True) for at in triggers), *((start, False) for start, _ in backfills)}
    still = tuple(each for key, each in failing.items() if key in kept)
    return replace(state, triggers=tuple(triggers), backfills=tuple(backfills), failing=still)


def _plan_after(read: ReadSchedule, times: After, now: datetime, state: State, chains: Chains) -> _Planned:
    next_at = read.row.next_at
    if state.waiting_since is not None:
        if _open(state.last_chains, chains):
            return _Planned([], state, None, _look_again(state.waiting_since, now))
        # A chain that is gone has ended, too: when, is not known.
        ended = [chains.get(each) or now for each in state.last_chains]
        following = times.next(max(ended), name=read.row.name)
        state = replace(state, waiting_since=None)
        next_at = None if following is None else whole_milliseconds(following.at)
    if next_at is None or next_at > now:
        return _Planned([], state, next_at, next_at)
    # The clock may have been set back since the last tick: no two have the same time.
    at = whole_milliseconds(max(next_at, state.horizon + MILLISECOND))
    return _Planned([Tick(at, at, read.row.name)], replace(state, horizon=at), None, None)


def _plan_ticks(
    read: ReadSchedule, times: Cron | Every, now: datetime, state: State, chains: Chains, limit: int
) -> _Planned:
    due, horizon = _due_ticks(read, times, now, state, limit)
    wanted, skipped = _without_overlap(read, state, due, _open(state.last_chains, chains))
    gaps = tuple(each for each in state.gaps if each[1] > horizon)
    state = replace(wanted.state, horizon=horizon, gaps=gaps, skips=state.skips + len(skipped))
    following = _next(times, state, read.row.name)
    next_at = None if following is None else following.at
    due_at = None if following is None else following.due
    if skipped:
        state = replace(state, skipped_at=skipped[-1].at)
    if state.queued is not None:
        since = state.waiting_since or now
        state = replace(state, waiting_since=since)
        again = _look_again(since, now)
        due_at = again if due_at is None else min(due_at, again)
    elif not wanted.fires:
        state = replace(state, waiting_since=None)
    return _Planned(wanted.fires, state, next_at, due_at, skipped)


def _next(times: Cron | Every, state: State, name: str) -> Tick | None:
    """The first tick after the horizon that is in no pause."""
    tick = times.next(state.horizon, name=name)
    for begin, end in state.gaps:
        if tick is not None and begin < tick.at <= end:
            tick = times.next(end, name=name)
    return tick


def _between_gaps(state: State, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The times from the horizon on in which ticks fire, the latest first."""
    for begin, end in reversed(state.gaps):
        if end < until:
            yield max(end, state.horizon), until
        until = min(until, begin)
    yield state.horizon, until


def _due_ticks(
    read: ReadSchedule, times: Cron | Every, now: datetime, state: State, limit: int
) -> tuple[list[Tick], datetime]:
    """The ticks that fire unless others overlap, oldest first, and how far the schedule has come
    then.
    """
    definition, name = read.definition, read.row.name
    first = _next(times, state, name)
    if first is None or first.due > now:
        return [], state.horizon
    until = now - first.jitter  # the same for all ticks of a schedule
    number = definition.catch_up_max if definition.catch_up == "all" else 1
    found = list[Tick]()
    for begin, end in _between_gaps(state, until):
        if len(found) < number and begin < end:
            found = times.last_ticks(end, number - len(found), after=begin, name=name) + found
    within = ON_TIME.total_seconds() if definition.catch_up == "none" else definition.within
    if within is not None:
        oldest = until - timedelta(seconds=within)
        on_time = [tick for tick in found if tick.at >= oldest]
        # The horizon also passes those that do not fire.
        if not on_time:
            return [], found[-1].at
        found = on_time
    chosen = found[:limit]
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
    if state.errors or state.failing:
        return "failing"
    if state.waiting_since is not None:
        return "waiting"
    return "active" if row.due_at is not None else "ended"
