"""Brute force: what clocks show, minute by minute, and which minutes a cron expression means.

Nothing here uses cronsim or the code under test. The rule of Debian's cron is written as a walk through every minute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo, available_timezones

MINUTE = timedelta(minutes=1)
WEEK = timedelta(days=7)
FIRST = datetime(2025, 1, 1, tzinfo=UTC)
LAST = datetime(2041, 1, 1, tzinfo=UTC)
WEEKS = [FIRST + WEEK * number for number in range(1, (LAST - FIRST) // WEEK + 2)]

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True)
class Change:
    """A moment at which the clocks of a zone change."""

    at: datetime
    before: timedelta
    after: timedelta


@dataclass(frozen=True)
class Pattern:
    """A cron expression, and what it means."""

    expression: str
    minutes: Collection[int]
    hours: Collection[int]
    weekdays: Collection[int] = range(7)

    @property
    def is_fixed(self) -> bool:
        minute, hour = self.expression.split()[:2]
        return "*" not in minute + hour

    def matches(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and wall.weekday() in self.weekdays


FIXED = (
    Pattern("0 0 * * *", {0}, {0}),
    Pattern("30 0 * * *", {30}, {0}),
    Pattern("59 23 * * *", {59}, {23}),
    Pattern("0 1 * * *", {0}, {1}),
    Pattern("30 1 * * *", {30}, {1}),
    Pattern("45 1 * * *", {45}, {1}),
    Pattern("0 2 * * *", {0}, {2}),
    Pattern("15 2 * * *", {15}, {2}),
    Pattern("30 2 * * *", {30}, {2}),
    Pattern("0 3 * * *", {0}, {3}),
    Pattern("30 3 * * *", {30}, {3}),
    Pattern("15 12 * * *", {15}, {12}),
)
"""Once a day."""

OTHERS = (
    Pattern("0,20,40 0-3 * * *", {0, 20, 40}, range(4)),
    Pattern("0 0-23 * * *", {0}, range(24)),
    Pattern("10-50/20 22,23,0,1,2,3 * * sat,sun", {10, 30, 50}, {22, 23, 0, 1, 2, 3}, {5, 6}),
    Pattern("0 * * * *", {0}, range(24)),
    Pattern("40 * * * *", {40}, range(24)),
    Pattern("15 */3 * * *", {15}, range(0, 24, 3)),
    Pattern("0 */2 * * sun", {0}, range(0, 24, 2), {6}),
    Pattern("*/20 0 * * *", {0, 20, 40}, {0}),
    Pattern("*/30 1,2 * * *", {0, 30}, {1, 2}),
    Pattern("*/15 23 * * fri-sat", {0, 15, 30, 45}, {23}, {4, 5}),
)
"""Several times a day; some follow real time."""


def random_pattern(random: Random) -> Pattern:
    minutes = sorted(random.sample(range(60), random.randint(1, 3)))
    hours = sorted(random.sample(range(24), random.randint(1, 6)))
    days = sorted(random.sample(range(7), random.choice([1, 3, 7])))
    step = random.choice([1, 2, 3, 5])
    hour, meant = random.choice(
        [(",".join(map(str, hours)), hours), ("*" if step == 1 else f"*/{step}", list(range(0, 24, step)))]
    )
    day = "*" if len(days) == 7 else ",".join(DAYS[day] for day in days)
    return Pattern(f"{','.join(map(str, minutes))} {hour} * * {day}", minutes, meant, days)


def walk(zone: ZoneInfo, after: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Each minute in (after, until], and what clocks show then."""
    minutes: list[tuple[datetime, datetime]] = []
    at = after + MINUTE
    while at <= until:
        minutes.append((at, at.astimezone(zone).replace(tzinfo=None, fold=0)))
        at += MINUTE
    return minutes


def ticks(pattern: Pattern, minutes: Sequence[tuple[datetime, datetime]]) -> list[datetime]:
    """The ticks among these minutes, by the rule. The first minutes must have no change near them."""
    if not pattern.is_fixed:
        return [at for at, wall in minutes if pattern.matches(wall)]
    found: list[datetime] = []
    latest = minutes[0][1] - MINUTE
    for at, wall in minutes:
        is_first = False
        # Clocks show these times, or skip them, for the first time.
        while latest < wall:
            latest += MINUTE
            is_first = is_first or pattern.matches(latest)
        if is_first:
            found.append(at)
    return found


def changes(zone: ZoneInfo) -> Iterator[Change]:
    """The changes of the years under test. No zone has two of them in one week."""
    before = offset(zone, FIRST)
    for week in WEEKS:
        after = offset(zone, week)
        if before != after:
            first, last = week - WEEK, week
            while last - first > MINUTE:
                middle = first + (last - first) // MINUTE // 2 * MINUTE
                if offset(zone, middle) == before:
                    first = middle
                else:
                    last = middle
            yield Change(last, before, after)
            before = after


def offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def zones() -> dict[str, tuple[Change, ...]]:
    """Every zone of tzdata, with its changes."""
    return {name: tuple(changes(ZoneInfo(name))) for name in sorted(available_timezones()) if name != "localtime"}


def representatives() -> dict[str, tuple[Change, ...]]:
    """One zone of each group whose clocks show the same at every moment of the years under test."""
    groups: dict[object, tuple[str, tuple[Change, ...]]] = {}
    for name, found in zones().items():
        groups.setdefault((FIRST.astimezone(ZoneInfo(name)).utcoffset(), found), (name, found))
    return dict(groups.values())
