"""What is stored of a schedule as JSON: what it does, and how far it has come."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, TypeVar, cast, get_args

import msgspec

from queuert.errors import InvalidSchedule
from queuert.records.schedules import ScheduleRow

Overlap = Literal["allow", "skip", "queue", "cancel"]
"""What happens at a tick while a chain of an earlier one has not ended."""
CatchUp = Literal["none", "last", "all"]
"""Which of the ticks that passed without a worker still fire."""

OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)
CATCH_UPS: tuple[CatchUp, ...] = get_args(CatchUp)

T = TypeVar("T")


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a schedule does. Two that are equal have the same JSON."""

    times: dict[str, Any]
    """See `queuert.features.schedules.times.from_data`."""
    type: str | None = None
    """The job type that it starts. None: a function makes the jobs."""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    priority: int | None = None
    deadline: float | None = None
    """Seconds after the firing."""
    lane: str | None = None
    """The lane of its jobs, if their type has a limit."""
    weight: float | None = None
    """The weight of that lane, if the limit takes it from the job."""
    overlap: Overlap = "allow"
    catch_up: CatchUp = "last"
    catch_up_max: int = 100
    within: float | None = None
    """Seconds: older ticks are not caught up with."""


class FailingTick(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tick that could not be fired, and is tried again apart from the others."""

    at: datetime
    """The tick, or when the schedule was triggered by hand."""
    triggered: bool = False
    """It was triggered by hand."""
    error: str
    """Why the last try failed."""
    error_at: datetime
    """When that was."""
    errors: int
    """How many tries in a row failed."""
    retry_at: datetime
    """When it is tried again."""


class State(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a schedule has come."""

    created_at: datetime
    horizon: datetime
    """Ticks up to here have fired, or never will: only `backfill` fires them again."""
    last_tick: datetime | None = None
    """The tick that has fired last."""
    last_chains: tuple[str, ...] = ()
    """The chains that it started."""
    waiting_since: datetime | None = None
    """Since when the schedule waits for these chains to end, as `After` and "queue" do."""
    queued: datetime | None = None
    """The tick that fires when they have ended."""
    skipped_at: datetime | None = None
    """The last tick that did not fire because of the overlap."""
    skips: int = 0
    """How many there were."""
    cancelling: tuple[str, ...] = ()
    """Chains that are to be cancelled, because a later tick has fired."""
    error: str | None = None
    """Why the last try to fire it failed."""
    error_at: datetime | None = None
    errors: int = 0
    """How many tries in a row failed."""
    paused_at: datetime | None = None
    paused_until: datetime | None = None
    disabled_at: datetime | None = None
    """Since when no worker declares it."""
    triggers: tuple[datetime, ...] = ()
    """When it was triggered by hand, and has not fired for that yet."""
    triggered_at: datetime | None = None
    """The last of them, also if it has fired: each has a time of its own."""
    backfills: tuple[tuple[datetime, datetime], ...] = ()
    """Times whose ticks are to fire, each without its end."""
    failing: tuple[FailingTick, ...] = ()
    """Those of these two that are tried again. A tick is among `backfills`, one microsecond
    long."""
    gaps: tuple[tuple[datetime, datetime], ...] = ()
    """Pauses after the horizon: no tick fires that is after the first time, and not after the
    second."""
    declared_by: str | None = None
    """The release whose declaration this is."""
    declared_since: datetime | None = None
    """When that release was first seen."""
    undeclared_for: float = 0.0
    """Seconds that workers lived and none declared it."""
    undeclared_at: datetime | None = None
    """When that was last counted."""


_encode = msgspec.json.encode
_DEFINITION, _STATE = msgspec.json.Decoder(Definition), msgspec.json.Decoder(State)


def encode(part: Definition | State) -> bytes:
    return _encode(part)


def definition_of(row: ScheduleRow) -> Definition:
    return cast(Definition, _decode(row, _DEFINITION, row.definition))


def state_of(row: ScheduleRow) -> State:
    return cast(State, _decode(row, _STATE, row.state))


def _decode(row: ScheduleRow, decoder: msgspec.json.Decoder[Any], data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise InvalidSchedule(
            f"the stored schedule {row.name!r} cannot be read by this version of queuert: {error}"
        ) from error
