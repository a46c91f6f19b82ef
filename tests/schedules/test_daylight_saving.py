"""The ticks of cron expressions around clock changes, in every zone of tzdata, against brute force."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from zoneinfo import ZoneInfo

import pytest
from tests.schedules.clocks import (
    FIRST,
    FIXED,
    LAST,
    OTHERS,
    Change,
    Pattern,
    random_pattern,
    representatives,
    ticks,
    walk,
    zones,
)

from queuert import Cron

HOUR = timedelta(hours=1)


def computed(pattern: Pattern, name: str, after: datetime, until: datetime) -> list[datetime]:
    cron = Cron(pattern.expression, tz=name)
    found: list[datetime] = []
    tick = cron.next(after)
    while tick is not None and tick.at <= until:
        # Not `tick.local == tick.at`: a time that clocks show twice is equal to no time of another zone.
        assert tick.local.astimezone(UTC) == tick.at
        found.append(tick.at)
        tick = cron.next(tick.at)
    return found


def check(name: str, change: Change, patterns: list[Pattern], hours: int = 25) -> None:
    after, until = change.at - hours * HOUR, change.at + hours * HOUR
    minutes = walk(ZoneInfo(name), after, until)
    for pattern in patterns:
        expected = ticks(pattern, minutes)
        assert computed(pattern, name, after, until) == expected, (name, change, pattern.expression)


@pytest.mark.parametrize("share", [0.2, pytest.param(1.0, marks=pytest.mark.soak)])
def test_days_around_each_change_of_2025_to_2040(share: float) -> None:
    """Each pattern meets each kind of change. Which ones meet which of the other changes is left to chance."""
    random = Random(17)
    seen: set[tuple[object, ...]] = set()
    for name, found in representatives().items():
        for change in found:
            kind = ((change.at + change.before).time(), change.after - change.before)
            if kind in seen and random.random() >= share:
                continue
            if kind in seen:
                other = random.choice(OTHERS) if random.random() < 0.5 else random_pattern(random)
                check(name, change, [random.choice(FIXED), other], hours=14)
            else:
                seen.add(kind)
                check(name, change, [*FIXED, *OTHERS])
    assert len(seen) > 15


@pytest.mark.parametrize("moment", range(0, 120, 7))
def test_from_any_moment_of_a_repeated_hour(moment: int) -> None:
    """Clocks in New York show 01:00 to 02:00 twice, from 05:00 to 07:00 in UTC."""
    after = datetime(2026, 11, 1, 5, tzinfo=UTC) + timedelta(minutes=moment)
    minutes = walk(ZoneInfo("America/New_York"), after - 30 * HOUR, after + 30 * HOUR)
    for pattern in (*FIXED, *OTHERS):
        expected = next(at for at in ticks(pattern, minutes) if at > after) if pattern.weekdays == range(7) else None
        tick = Cron(pattern.expression, tz="America/New_York").next(after)
        assert tick is not None
        assert expected in (None, tick.at), pattern.expression


@pytest.mark.soak
def test_days_around_each_change_in_every_zone() -> None:
    random = Random(18)
    for name, found in zones().items():
        for change in found:
            check(name, change, [*random.sample(FIXED, 4), *random.sample(OTHERS, 4), random_pattern(random)])


@pytest.mark.soak
def test_every_day_of_2025_to_2040() -> None:
    """An expression with a fixed time fires once for each day of each zone's calendar."""
    for name, found in representatives().items():
        gaps = {change.at for change in found if change.after > change.before}
        for pattern in FIXED:
            (hour,), (minute,) = pattern.hours, pattern.minutes
            cron = Cron(pattern.expression, tz=name)
            tick = cron.next(FIRST)
            assert tick is not None
            wall = tick.local.replace(tzinfo=None, hour=hour, minute=minute)
            while tick is not None and tick.at < LAST:
                assert tick.local.replace(tzinfo=None) == wall or tick.at in gaps, (name, pattern.expression, tick)
                assert tick.local.fold == 0
                wall += timedelta(days=1)
                tick = cron.next(tick.at)
