"""When a schedule fires: `Cron`, `Every` and `After`, and the `Tick`s that they name.

Nothing here needs a database, and nothing looks at a clock. The same arguments give the same ticks
on every host, as long as the hosts have the same time zone data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from typing import ClassVar, TypeAlias

from queuert.base.times import EPOCH, MICROSECOND
from queuert.errors import InvalidArgument, InvalidSchedule
from queuert.features.schedules import cron
from queuert.features.schedules.zones import zone

Data: TypeAlias = dict[str, str | float]
"""A stored form. Its field "kind" says which class it is of."""

NONE = timedelta()
SMALLEST = timedelta(milliseconds=1)
# The limits of datetime itself are near: no offset of a zone goes beyond them.
FIRST_YEAR, LAST_YEAR = 1900, 9998


@dataclass(frozen=True)
class Tick:
    """One moment at which a schedule fires.

    Args:
        at: The moment, in UTC. A schedule has no two ticks at one moment.
        local: The same moment in the schedule's time zone.
        schedule: The name of the schedule (default: "", if the tick was computed without one).
        jitter: How long after `at` the schedule fires (default: not later).
    """

    at: datetime
    local: datetime
    schedule: str = ""
    jitter: timedelta = NONE

    @property
    def due(self) -> datetime:
        """When the schedule fires: `at`, and its jitter after it."""
        return self.at + self.jitter


@dataclass(frozen=True, kw_only=True)
class _Bounded(ABC):
    """The moments between which a schedule has ticks: `start` is one of them, `end` is not."""

    start: datetime | None = None
    end: datetime | None = None

    _kind: ClassVar[str]

    def __post_init__(self) -> None:
        for name in ("start", "end"):
            moment: object = getattr(self, name)
            if moment is not None:
                object.__setattr__(self, name, _utc(moment, f"{self._what()}: {name}", InvalidSchedule))
        if self.start is not None and self.end is not None and self.start >= self.end:
            raise InvalidSchedule(f"{self._what()} never fires: its end {self.end} is not after its start {self.start}")

    @abstractmethod
    def next(self, after: datetime, *, name: str = "") -> Tick | None:
        """The first tick after a moment, or None if there is none."""

    def to_data(self) -> Data:
        """The stored form, for JSON. `from_data` reads it."""
        data: Data = {"kind": self._kind}
        for name in ("start", "end"):
            moment = getattr(self, name)
            if moment is not None:
                data[name] = moment.isoformat()
        return data

    def _what(self) -> str:
        return type(self).__name__

    def _ended(self, at: datetime) -> bool:
        return at.year > LAST_YEAR or (self.end is not None and at >= self.end)

    def _bounds(self) -> str:
        start = "" if self.start is None else f" from {self.start.isoformat()}"
        return start if self.end is None else f"{start} until {self.end.isoformat()}"


@dataclass(frozen=True, kw_only=True)
class _Ticking(_Bounded):
    """A schedule whose ticks are known in advance."""

    jitter: timedelta = NONE
    tz: str = "UTC"

    def __post_init__(self) -> None:
        _check_zone(self.tz)
        _check_jitter(self.jitter)
        super().__post_init__()
        if self.start is not None and self.next(self.start - SMALLEST) is None:
            raise InvalidSchedule(f"{self._what()} never fires: it has no tick between its start and its end")

    @abstractmethod
    def _moment_after(self, after: datetime) -> datetime | None:
        """The first tick after a moment, whatever `start` and `end` are."""

    def next(self, after: datetime, *, name: str = "") -> Tick | None:
        """The first tick whose `at` is after a moment, or None if there is none.

        Args:
            after: The moment. Its tick, if it has one, is not returned.
            name: The name of the schedule, which decides its jitter. Without a name there is none.
        """
        after = _utc(after, "after", InvalidArgument)
        if self.start is not None:
            # A tick at `start` itself counts.
            after = max(after, self.start - MICROSECOND)
        try:
            at = self._moment_after(after)
            return None if at is None or self._ended(at) else self._tick(at, name)
        except OverflowError:
            # After the year 9999.
            return None

    def ticks(self, after: datetime, count: int, *, name: str = "") -> list[Tick]:
        """The next ticks, oldest first. There are fewer than `count` if the schedule ends.

        Args:
            after: The moment after which they are. Its own tick, if it has one, is left out.
            count: How many.
            name: The name of the schedule, which decides its jitter. Without a name there is none.
        """
        _check_count(count)
        found: list[Tick] = []
        while len(found) < count and (tick := self.next(after, name=name)) is not None:
            found.append(tick)
            after = tick.at
        return found

    def last_ticks(self, until: datetime, count: int, *, after: datetime, name: str = "") -> list[Tick]:
        """The latest ticks in (after, until], oldest first. The cost depends only on `count`.

        Args:
            until: The moment up to which to look. Its own tick, if it has one, counts.
            count: How many at most.
            after: The moment after which they are. Its own tick, if it has one, is left out.
            name: The name of the schedule, which decides its jitter. Without a name there is none.
        """
        _check_count(count)
        after, until = _utc(after, "after", InvalidArgument), _utc(until, "until", InvalidArgument)
        # Look back further and further, to read few more ticks than are wanted.
        span = timedelta(minutes=1)
        while span < until - after:
            found = self._between(until - span, until, name)
            if len(found) >= count:
                return found[-count:]
            span *= 2
        return self._between(after, until, name)[-count:]

    def to_data(self) -> Data:
        data = super().to_data()
        if self.tz != "UTC":
            data["tz"] = self.tz
        if self.jitter:
            data["jitter"] = self.jitter.total_seconds()
        return data

    def _between(self, after: datetime, until: datetime, name: str) -> list[Tick]:
        found: list[Tick] = []
        while (tick := self.next(after, name=name)) is not None and tick.at <= until:
            found.append(tick)
            after = tick.at
        return found

    def _tick(self, at: datetime, name: str) -> Tick:
        return Tick(at, at.astimezone(self._zone), name, _share(name, self.jitter))

    @property
    def _zone(self) -> tzinfo:
        return zone(self.tz)

    def _details(self) -> str:
        where = "" if self.tz == "UTC" else f" {self.tz}"
        jitter = f" with jitter {self.jitter}" if self.jitter else ""
        return where + self._bounds() + jitter


@dataclass(frozen=True)
class Cron(_Ticking):
    """A cron expression in a time zone: `Cron("0 3 * * mon-fri", tz="Europe/Berlin")`.

    Args:
        expression: Five fields: minute, hour, day of the month, month, day of the week. Or
            `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. There are no seconds.
        tz: The name of the time zone (default: "UTC").
        jitter: At most how long after its moment each tick fires. The schedule's name decides how
            long, so it is the same for all of its ticks (default: none).
        start: The moment before which there are no ticks (default: none).
        end: The moment from which there are no ticks (default: none).
    """

    expression: str

    _kind = "cron"

    def __post_init__(self) -> None:
        object.__setattr__(self, "expression", _checked_expression(self.expression))
        super().__post_init__()

    def to_data(self) -> Data:
        """The stored form, for JSON. `from_data` reads it."""
        return {**super().to_data(), "expression": self.expression}

    def __str__(self) -> str:
        return self.expression + self._details()

    def _what(self) -> str:
        return f"Cron({self.expression!r})"

    def _moment_after(self, after: datetime) -> datetime | None:
        return cron.next_moment(self.expression, self._zone, after)


@dataclass(frozen=True)
class Every(_Ticking):
    """A fixed interval: `Every(timedelta(minutes=5))`.

    Ticks are counted from `start`, or else from 1970-01-01 in UTC. So they are the same on every
    host, whenever it was started, and clock changes do not move them.

    Args:
        interval: The time from one tick to the next, 1 millisecond or more.
        tz: The name of the time zone of `Tick.local` (default: "UTC").
        jitter: At most how long after its moment each tick fires. The schedule's name decides how
            long, so it is the same for all of its ticks (default: none).
        start: The first tick (default: none).
        end: The moment from which there are no ticks (default: none).
    """

    interval: timedelta

    _kind = "every"

    def __post_init__(self) -> None:
        _check_interval(self.interval, "Every: the interval")
        super().__post_init__()

    def to_data(self) -> Data:
        """The stored form, for JSON. `from_data` reads it."""
        return {**super().to_data(), "interval": self.interval.total_seconds()}

    def __str__(self) -> str:
        return f"every {self.interval}{self._details()}"

    def _moment_after(self, after: datetime) -> datetime | None:
        anchor = self.start or EPOCH
        return anchor + ((after - anchor) // self.interval + 1) * self.interval


@dataclass(frozen=True)
class After(_Bounded):
    """A fixed delay, counted from the end of the last run: `After(timedelta(minutes=5))`.

    Its ticks are not known in advance.

    Args:
        delay: The time from the end of a run to the start of the next, 1 millisecond or more.
        start: The moment before which it does not run (default: none).
        end: The moment from which it does not run (default: none).
    """

    delay: timedelta

    _kind = "after"

    def __post_init__(self) -> None:
        _check_interval(self.delay, "After: the delay")
        super().__post_init__()

    def next(self, after: datetime, *, name: str = "") -> Tick | None:
        """The tick that follows a run, or None if there is none.

        Args:
            after: The end of the last run.
            name: The name of the schedule.
        """
        try:
            at = _utc(after, "after", InvalidArgument) + self.delay
        except OverflowError:
            # After the year 9999.
            return None
        if self.start is not None:
            at = max(at, self.start)
        return None if self._ended(at) else Tick(at, at, name)

    def ticks(self, after: datetime, count: int, *, name: str = "") -> list[Tick]:  # noqa: ARG002
        """Raises `InvalidArgument`: the ticks depend on how long each run takes.

        Args:
            after: Not used.
            count: Not used.
            name: Not used.
        """
        raise InvalidArgument(
            f"the ticks of {self} are not known in advance: each one depends on the end of the run before it"
        )

    def to_data(self) -> Data:
        """The stored form, for JSON. `from_data` reads it."""
        return {**super().to_data(), "delay": self.delay.total_seconds()}

    def __str__(self) -> str:
        return f"{self.delay} after the last run{self._bounds()}"


Times: TypeAlias = Cron | Every | After
"""When a schedule fires."""

KINDS: dict[str, type[Times]] = {"cron": Cron, "every": Every, "after": After}


def from_data(data: Mapping[str, object]) -> Times:
    """What `to_data` stored. Raises `InvalidSchedule` if this version or host cannot use it."""
    fields = dict(data)
    kind = fields.pop("kind", None)
    try:
        for name in ("start", "end"):
            if name in fields:
                fields[name] = datetime.fromisoformat(str(fields[name]))
        for name in ("jitter", "interval", "delay"):
            if name in fields:
                fields[name] = timedelta(seconds=float(str(fields[name])))
        times = KINDS.get(str(kind))
        if times is not None:
            return times(**fields)  # type: ignore[arg-type]
    except InvalidSchedule:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidSchedule(f"the stored times {dict(data)!r} cannot be read: {error}") from error
    raise InvalidSchedule(f"the stored times {dict(data)!r} are of a kind that this version of queuert does not know")


def _share(name: str, jitter: timedelta) -> timedelta:
    """The part of the jitter that a schedule of this name has, in whole milliseconds."""
    if not name or not jitter:
        return NONE
    number = int.from_bytes(sha256(name.encode()).digest()[:8])
    return jitter // SMALLEST * number // 2**64 * SMALLEST


def _utc(moment: object, what: str, error: type[InvalidArgument]) -> datetime:
    if not isinstance(moment, datetime):
        raise error(f"{what} must be a datetime, got {moment!r}")
    if moment.utcoffset() is None:
        raise error(f"{what} must have a time zone, such as datetime(…, tzinfo=UTC), got {moment!r}")
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise error(f"{what} must be in the years {FIRST_YEAR} to {LAST_YEAR}, got {moment!r}")
    return moment.astimezone(UTC)


def _checked_expression(expression: object) -> str:
    if not isinstance(expression, str):
        raise InvalidSchedule(f"a cron expression must be a string, got {expression!r}")
    expression = " ".join(expression.split())
    cron.check(expression)
    return expression


def _check_zone(tz: object) -> None:
    if not isinstance(tz, str):
        raise InvalidSchedule(f"tz must be the name of a time zone, such as 'Europe/Berlin', got {tz!r}")
    zone(tz)


def _check_jitter(jitter: object) -> None:
    if not isinstance(jitter, timedelta) or jitter < NONE:
        raise InvalidSchedule(f"jitter must be a timedelta that is not negative, got {jitter!r}")


def _check_interval(interval: object, what: str) -> None:
    if not isinstance(interval, timedelta):
        raise InvalidSchedule(f"{what} must be a timedelta, got {interval!r}")
    if interval < SMALLEST:
        raise InvalidSchedule(f"{what} must be 1 millisecond or more, got {interval!r}")


def _check_count(count: object) -> None:
    if type(count) is not int or count < 1:
        raise InvalidArgument(f"count must be 1 or more, got {count!r}")
