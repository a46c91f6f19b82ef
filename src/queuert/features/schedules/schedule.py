"""A schedule as users see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from queuert.base.times import clock
from queuert.errors import DriverMissing, InvalidSchedule
from queuert.features.schedules.planning import ScheduleStatus, status_of
from queuert.features.schedules.stored import CatchUp, Definition, FailingTick, Overlap, State, definition_of, state_of
from queuert.features.schedules.times import Times, from_data
from queuert.records.schedules import ScheduleRow

SHOWN = 5
"""Failing ticks in the text of a schedule."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A schedule, as it was when it was read. `print(schedule)` shows its state."""

    name: str
    """Its name."""
    times: Times | None
    """When it fires: a `Cron`, an `Every` or an `After`. None if that cannot be read here, for
    example because a newer version of queuert has stored it: `error` has the reason."""
    job_type: str | None
    """The name of the job type that it starts. None: a function of the program makes the jobs."""
    input: Mapping[str, Any] | None
    """The input of the job, as plain JSON. None: a function makes it."""
    priority: int | None
    """The priority of the job; None for the default."""
    deadline: timedelta | None
    """The job expires if its handler has not begun this long after the firing; None: no limit."""
    overlap: Overlap
    """What happens at a tick while a chain of an earlier one has not ended: "allow", "skip",
    "queue" or "cancel"."""
    catch_up: CatchUp
    """Which of the ticks that passed without a worker still fire: "none", "last" or "all"."""
    catch_up_max: int
    """How many of them, with "all"."""
    within: timedelta | None
    """Only those that passed at most this long ago; None for no limit."""
    declared: bool
    """Workers declare it. Otherwise a client has put it."""
    status: ScheduleStatus
    """ "active": it waits for its next tick. "waiting": for its last chains to end. "failing": the
    last try to fire it failed, or that of one of its ticks. "paused". "disabled": no worker
    declares it any more. "ended": it has no more ticks."""
    next_at: datetime | None
    """Its next tick. None if it has none, or if that is not known yet."""
    last_tick: datetime | None
    """The tick that fired last. None if none has."""
    last_chain_ids: tuple[str, ...]
    """The chains that it started."""
    queued: datetime | None
    """With overlap "queue": the tick that fires when these have ended."""
    skips: int
    """How many ticks were left out because of the overlap."""
    skipped_at: datetime | None
    """The last of these ticks."""
    error: str | None
    """Why the last try to fire it, or one of `failing_ticks`, failed; None if none failed."""
    error_at: datetime | None
    """When that was."""
    errors: int
    """How many tries in a row failed."""
    failing_ticks: tuple[FailingTick, ...]
    """Ticks that failed while the schedule goes on: those that were triggered or backfilled, and
    with catch_up "all" and overlap "allow" all others. Each is tried again for itself."""
    paused_until: datetime | None
    """When its pause ends by itself. None if it is not paused, or until it is resumed."""
    disabled_at: datetime | None
    """Since when it is disabled."""
    release: str | None
    """The release of the program whose declaration this is. None if a client has put it."""
    created_at: datetime
    """When it was made."""
    read_at: datetime
    """When this was read."""

    def __str__(self) -> str:
        now, what = self.read_at, self.job_type or "a function"
        times = "times that cannot be read here" if self.times is None else self.times
        lines = [f"{self.name}: {times}, {what}", f"  {self._status(now)}"]
        if self.last_tick is not None:
            number = len(self.last_chain_ids)
            started = "no chain" if not number else self.last_chain_ids[0]
            more = f" and {number - 1} more" if number > 1 else ""
            lines.append(f"  last tick: {clock(self.last_tick, now)}, it started {started}{more}")
        if self.skipped_at is not None:
            running = "the chains of an earlier tick had not ended (blocked ones count as running)"
            lines.append(f"  {self.skips} skipped, the last at {clock(self.skipped_at, now)}: {running}")
        for tick in self.failing_ticks[:SHOWN]:
            what = "triggered at" if tick.triggered else "the tick of"
            tried = "once" if tick.errors == 1 else f"{tick.errors} times in a row"
            again = f"it is tried again at {clock(tick.retry_at, now)}"
            lines.append(f"  {what} {clock(tick.at, now)} has failed {tried}, {again}: {tick.error}")
        if len(self.failing_ticks) > SHOWN:
            lines.append(f"  and {len(self.failing_ticks) - SHOWN} more have failed")
        return "\n".join(lines)

    def _status(self, now: datetime) -> str:
        match self.status:
            case "disabled":
                return "disabled: no worker has declared it for 24 hours; it comes back when one does"
            case "paused":
                until = "it is resumed" if self.paused_until is None else clock(self.paused_until, now)
                return f"paused until {until}"
            case "failing":
                return f"failing, {self.errors} times in a row: {self.error}"
            case "waiting":
                chain = self.last_chain_ids[0] if self.last_chain_ids else "its chain"
                return f"waits for the end of {chain}"
            case "ended":
                return "it has no more ticks"
            case _:
                return "active" if self.next_at is None else f"next tick: {clock(self.next_at, now)}"


def schedule_from(row: ScheduleRow, now: datetime) -> Schedule:
    """Never raises: also a schedule that this version cannot read can be listed and deleted."""
    times: Times | None = None
    definition, state = Definition(times={}), State(created_at=now, horizon=now)
    unreadable: str | None = None
    try:
        state = state_of(row)
        definition = definition_of(row)
        times = from_data(definition.times)
    except (InvalidSchedule, DriverMissing) as error:
        unreadable = str(error)
    if unreadable is not None and not state.errors:
        state = replace(state, error=unreadable, errors=1)
    status = status_of(row, state, now)
    if state.failing and not state.errors:
        last = max(state.failing, key=lambda each: each.error_at)
        state = replace(state, error=last.error, error_at=last.error_at, errors=last.errors)
    stored = definition.type is not None
    return Schedule(
        name=row.name,
        times=times,
        job_type=definition.type,
        input=msgspec.json.decode(definition.input) if stored else None,
        priority=definition.priority,
        deadline=_seconds(definition.deadline),
        overlap=definition.overlap,
        catch_up=definition.catch_up,
        catch_up_max=definition.catch_up_max,
        within=_seconds(definition.within),
        declared=row.declared,
        status=status,
        next_at=row.next_at,
        last_tick=state.last_tick,
        last_chain_ids=state.last_chains,
        queued=state.queued,
        skips=state.skips,
        skipped_at=state.skipped_at,
        error=state.error,
        error_at=state.error_at,
        errors=state.errors,
        failing_ticks=state.failing,
        paused_until=state.paused_until if status == "paused" else None,
        disabled_at=state.disabled_at,
        release=state.declared_by,
        created_at=state.created_at,
        read_at=now,
    )


def _seconds(number: float | None) -> timedelta | None:
    return None if number is None else timedelta(seconds=number)
