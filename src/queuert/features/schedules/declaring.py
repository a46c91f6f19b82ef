"""Bringing declared schedules up to date.

Each worker stores from time to time which schedules it declares, and its release. Releases are
texts without an order: the newest is the one that was first seen most recently. A schedule follows
the declaration of its newest release, as long as a worker of that release is alive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256

from msgspec.structs import replace

from queuert.engine.engine import Engine
from queuert.engine.transaction import Hooks
from queuert.errors import DriverMissing, InvalidSchedule
from queuert.features.schedules.changing import put_row
from queuert.features.schedules.planning import counted_anew, stopped
from queuert.features.schedules.stored import Definition, State, definition_of, encode, state_of
from queuert.features.schedules.times import Times, from_data
from queuert.ports.program import Program
from queuert.records.schedules import ScheduleRow, SeenRelease

DECLARED_EVERY = 30.0
"""Seconds between two declarations of a worker."""
ALIVE_FOR = 3 * DECLARED_EVERY
"""Seconds after its last declaration until a release is no longer alive."""
DISABLED_AFTER = 24 * 3600.0
"""Seconds that workers lived and none declared a schedule: then it is disabled."""
COUNTED_EVERY = 300.0
"""Seconds between two counts of that time."""
COUNTED_AT_ONCE = 100
FORGOTTEN_AFTER = 7 * 24 * 3600.0
"""Seconds after its last declaration until a release is forgotten. Long before that, the others
know that it is not alive."""


def release_of(release: str | None, definition: Definition) -> str:
    """The release of a declaration: its own digest, if the worker has none."""
    return release if release is not None else f"digest {sha256(encode(definition)).hexdigest()[:16]}"


def declare(
    engine: Engine, hooks: Hooks, definitions: Mapping[str, Definition], release: str | None, *, begins: bool
) -> Program[dict[str, str]]:
    """Store that a worker declares these schedules, and store those that are new or newer.

    Returns the names of those that cannot be declared, and why. They do not affect the others.
    `begins`: the worker has just started. Only then does it replace a declaration of the same
    release.
    """
    names = sorted(definitions)
    keys = {name: release_of(release, definitions[name]) for name in names}
    seen = yield from engine.state.see_releases(list(keys.items()), alive_for=ALIVE_FOR, forget_after=FORGOTTEN_AFTER)
    releases = {(each.schedule, each.release): each for each in seen}
    refused: dict[str, str] = {}
    for name in names:
        mine = releases[name, keys[name]]
        try:
            taken = not (yield from _declare(engine, hooks, definitions[name], mine, releases, begins=begins))
        except (InvalidSchedule, DriverMissing) as error:
            refused[name] = str(error)
            continue
        if taken:
            refused[name] = f"the schedule {name!r} was put by a client: rename one of them, or delete that one"
    return refused


def _declare(
    engine: Engine,
    hooks: Hooks,
    definition: Definition,
    mine: SeenRelease,
    releases: Mapping[tuple[str, str], SeenRelease],
    *,
    begins: bool,
) -> Program[bool]:
    name, times = mine.schedule, from_data(definition.times)
    while True:
        look = yield from engine.state.get_schedules([name])
        row = look.rows[0]
        if row is not None and not row.declared:
            return False
        new = _declared(row, definition, times, look.now, mine, releases, begins=begins)
        if new is None:
            return True
        (saved,) = yield from engine.state.save_schedules([new])
        if saved:
            engine.notifications(hooks).add("schedule_changed", name)
            return True


def _declared(
    row: ScheduleRow | None,
    definition: Definition,
    times: Times,
    now: datetime,
    mine: SeenRelease,
    releases: Mapping[tuple[str, str], SeenRelease],
    *,
    begins: bool,
) -> ScheduleRow | None:
    """The row to be stored; None if it stays as it is."""
    if row is None:
        made = put_row(None, mine.schedule, definition, times, now, declared=True)
        assert made is not None
        return _signed(made, mine)
    state = state_of(row)
    own = state.declared_by == mine.release
    if not own and not _is_newer(mine, state, releases, now):
        return _is_declared(row, state, now)
    changed = put_row(row, mine.schedule, definition, times, now) if begins or not own else None
    if changed is not None:
        return _signed(changed, mine)
    row = row if own else _signed(row, mine)
    return _is_declared(row, state_of(row), now) or (None if own else row)


def _is_newer(mine: SeenRelease, state: State, releases: Mapping[tuple[str, str], SeenRelease], now: datetime) -> bool:
    if state.declared_by is None or state.declared_since is None:
        return True
    theirs = releases.get((mine.schedule, state.declared_by))
    if theirs is None or theirs.seen_at < now - timedelta(seconds=ALIVE_FOR):
        # What is stored may be newer than what was read of releases: it was stored a moment ago.
        return theirs is not None or mine.first_seen_at >= state.declared_since
    return mine.first_seen_at > max(theirs.first_seen_at, state.declared_since)


def _signed(row: ScheduleRow, mine: SeenRelease) -> ScheduleRow:
    state = replace(state_of(row), declared_by=mine.release, declared_since=mine.first_seen_at)
    return replace(row, state=encode(state))


def _is_declared(row: ScheduleRow, state: State, now: datetime) -> ScheduleRow | None:
    """A schedule that was not declared for a while, and is again. None if it was all the time."""
    if state.disabled_at is None and state.undeclared_at is None:
        return None
    was_disabled = state.disabled_at is not None
    state = replace(state, disabled_at=None, undeclared_for=0.0, undeclared_at=None)
    if not was_disabled:
        return replace(row, state=encode(state))
    state = replace(state, horizon=max(state.horizon, now))
    if state.paused_at is not None:
        return stopped(row, state, now)
    return counted_anew(row, state, from_data(definition_of(row).times), now)


def count_undeclared(engine: Engine) -> Program[list[str]]:
    """Count the time that schedules were not declared although workers lived. Returns the names of
    those that are disabled by that.
    """
    all_disabled, after = list[str](), None
    while True:
        look = yield from engine.state.undeclared_schedules(COUNTED_AT_ONCE, alive_for=ALIVE_FOR, after=after)
        rows = [row for row in look.rows if row is not None]
        changed, disabled = _counted(rows, look.now)
        for row in changed:
            # One that was changed meanwhile is counted the next time.
            (saved,) = yield from engine.state.save_schedules([row])
            if saved and row.name in disabled:
                all_disabled.append(row.name)
        if len(rows) < COUNTED_AT_ONCE:
            return all_disabled
        after = rows[-1].name


def _counted(rows: Sequence[ScheduleRow], now: datetime) -> tuple[list[ScheduleRow], list[str]]:
    changed: list[ScheduleRow] = []
    disabled: list[str] = []
    for row in rows:
        try:
            state = state_of(row)
        except InvalidSchedule:
            continue
        if state.disabled_at is not None:
            continue
        since = state.undeclared_at
        passed = 0.0 if since is None else (now - since).total_seconds()
        if since is not None and 0 <= passed < COUNTED_EVERY / 2:
            continue  # another worker has just counted
        # Not the time in which there was no worker to count it.
        total = state.undeclared_for + min(max(passed, 0.0), 2 * COUNTED_EVERY)
        state = replace(state, undeclared_for=total, undeclared_at=now)
        if total < DISABLED_AFTER:
            changed.append(replace(row, state=encode(state)))
        else:
            changed.append(stopped(row, replace(state, disabled_at=now), now))
            disabled.append(row.name)
    return changed, disabled
