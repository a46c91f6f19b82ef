"""Cron expressions: what is one, and the moments that it names in a time zone.

The package cronsim reads the expression and finds the next time on a clock that never changes. What
happens when clocks do change is decided here, by the rule of Debian's cron:

- An expression with a fixed hour and minute fires once for each of its times, at the first moment
  at which clocks show that time or a later one.
- An expression whose minute or hour begins with `*` fires whenever clocks show one of its times: a
  skipped hour has no ticks, and a repeated hour has them twice.

cronsim has this rule too. But it loses ticks where clocks change by half an hour (Lord Howe), and
in the second pass of a repeated hour it returns ticks of the first.
"""

from __future__ import annotations

from copy import copy
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import TYPE_CHECKING

from queuert.errors import DriverMissing, InvalidSchedule
from queuert.features.schedules.zones import ONE_SECOND, first_change, first_showing, wall

if TYPE_CHECKING:
    from cronsim import CronSim

SHORT = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

FIELDS = ("minute", "hour", "day of the month", "month", "day of the week")
SIZES = (60, 24, 31, 12, 7)

LONGEST = 500

SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - a time on a clock, in no zone


def check(expression: str) -> None:
    """Raise `InvalidSchedule` unless this is a cron expression that fires some day."""
    if len(expression) > LONGEST:
        raise InvalidSchedule(f"a cron expression has at most {LONGEST} characters, got {len(expression)}")
    if next(_times(expression, SOME_DAY), None) is None:
        raise _never(expression)


def next_moment(expression: str, where: tzinfo, after: datetime) -> datetime | None:
    """The first tick after this moment, in UTC. None if there is none in the next 50 years."""
    after = after.astimezone(UTC).replace(microsecond=0)
    if where is UTC:
        time = next(_times(expression, wall(UTC, after)), None)
        return None if time is None else time.replace(tzinfo=UTC)
    find = _next_of_fixed if _is_fixed(expression) else _next_of_real_time
    return find(expression, where, after)


def _next_of_fixed(expression: str, where: tzinfo, after: datetime) -> datetime | None:
    for time in _times(expression, wall(where, after)):
        at = first_showing(where, time)
        # Not in the second pass of a repeated hour: then its times have fired in the first one.
        if at > after:
            return at
    return None


def _next_of_real_time(expression: str, where: tzinfo, after: datetime) -> datetime | None:
    # Between two changes of the offset, a clock on the wall never changes.
    time = next(_times(expression, wall(where, after)), None)
    while time is not None:
        at = time.replace(tzinfo=UTC) - (after.astimezone(where).utcoffset() or timedelta())
        change = first_change(where, after, at)
        if change is None:
            return at
        # The moment of the change itself may be a tick.
        after = change
        time = next(_times(expression, wall(where, after) - ONE_SECOND), None)
    return None


def _is_fixed(expression: str) -> bool:
    minute, hour = _fields(expression)[:2]
    return not (minute.startswith("*") or hour.startswith("*"))


def _times(expression: str, after: datetime) -> CronSim:
    """The times that follow, on a clock that never changes. They end after 50 years without one."""
    times = copy(_parsed(expression))
    times.dt = after
    return times


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise DriverMissing("cronsim, which reads cron expressions,", ["schedules"], error) from error
    fields = _fields(expression)
    try:
        return CronSim(" ".join(fields), SOME_DAY)
    except (CronSimError, ValueError, AssertionError):
        pass
    # cronsim names the wrong field, but not its value: try each alone.
    for place, field in enumerate(fields):
        try:
            CronSim(" ".join(["*"] * place + [field] + ["*"] * (4 - place)), SOME_DAY)
        except (CronSimError, ValueError, AssertionError):
            name = FIELDS[place]
            hint = "; a range must go upwards: 5-7, or fri,sat,sun" if "-" in field else ""
            raise InvalidSchedule(
                f"{expression!r} is not a cron expression: {field!r} is not a valid {name}{hint}"
            ) from None
    # Each field is right, but no month has that day.
    raise _never(expression)


def _never(expression: str) -> InvalidSchedule:
    return InvalidSchedule(f"cron expression {expression!r} never fires: no month has that day")


@lru_cache(maxsize=1024)
def _fields(expression: str) -> list[str]:
    if expression.startswith("@"):
        return _long_form(expression).split()
    fields = expression.split()
    if len(fields) == 6:
        raise InvalidSchedule(
            f"{expression!r} has 6 fields, but a cron expression has 5: minute, hour, day, month, day of the week. "
            "For seconds, use Every(timedelta(seconds=…))"
        )
    if len(fields) != 5:
        raise InvalidSchedule(
            f"{expression!r} is not a cron expression: it needs 5 fields (minute, hour, day, month, day of the "
            f"week), such as '0 3 * * mon-fri', or one of {', '.join(SHORT)}"
        )
    for field, size, name in zip(fields, SIZES, FIELDS, strict=True):
        for part in field.split(","):
            step = part.partition("/")[2]
            if step.isdecimal() and len(step) < 10 and int(step) >= size:
                raise InvalidSchedule(
                    f"cron expression {expression!r}: the step of {part!r} is too large, a {name} has {size} values "
                    "(for a fixed interval, use Every(timedelta(…)))"
                )
    return fields


def _long_form(expression: str) -> str:
    try:
        return SHORT[expression.lower()]
    except KeyError:
        pass
    if expression.lower().startswith("@every"):
        raise InvalidSchedule(f"{expression!r} is not a cron expression: use Every(timedelta(…))")
    raise InvalidSchedule(f"{expression!r} is not a cron expression: the names are {', '.join(SHORT)}")
