"""From stored tallies to what users see: steps, their limits, and histograms."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from queuert.errors import InvalidArgument
from queuert.records.history import (
    BOUNDS,
    DAY,
    FINE,
    FINE_BOUNDS,
    HOUR,
    MINUTE,
    UNTIMED,
    Happened,
    Histogram,
    HistoryLook,
    HistoryPoint,
    Tally,
    What,
    check_reach,
    check_step,
    history_of,
    step_for,
    tallied,
)

NOW = datetime(2030, 1, 1, 12, 2, 30, tzinfo=UTC)
NOON = int(NOW.timestamp()) // HOUR * HOUR


def test_points_have_no_gaps_and_add_up() -> None:
    look = HistoryLook(
        NOW,
        [
            Tally("b", NOON, "begun", 1, 2, 0.04),
            Tally("b", NOON + 120, "completed", 4, 2, 1.5),
            Tally("b", NOON + 120, "completed", UNTIMED, 1, 0.0),
            Tally("a", NOON + 60, "failed", 12, 1, 4000.0),
            Tally("a", NOON + 180, "failed", 12, 1, 4000.0),  # after now: the clock was set back
        ],
    )

    found = history_of(look, NOON, MINUTE)

    assert list(found.types) == ["a", "b"]
    assert [point.at.minute for point in found.types["a"]] == [0, 1, 2]
    assert [point.failed for point in found.types["a"]] == [0, 1, 0]
    total = found.total()
    assert [(point.begun, point.completed, point.failed) for point in total] == [(2, 0, 0), (0, 0, 1), (0, 3, 0)]
    assert (total[0].waited.count, total[0].waited.mean) == (2, 0.02)
    assert (total[2].ran.count, total[2].ran.mean) == (2, 0.75)
    assert sum((point.ran for point in total), Histogram()).seconds == 4001.5


def counted(what: What, *all_seconds: float | None) -> list[Tally]:
    at = int(NOW.timestamp()) * 1_000_000
    return tallied([("a", at, what, seconds, 1) for seconds in all_seconds])


def lately(*tallies: Tally) -> HistoryPoint:
    found = history_of(HistoryLook(NOW, list(tallies)), NOON + 120, MINUTE)
    (point,) = found.types["a"]
    return point


def test_fine_buckets_are_a_tenth_wide() -> None:
    assert set(BOUNDS) <= set(FINE_BOUNDS)
    assert list(FINE_BOUNDS) == sorted(set(FINE_BOUNDS))
    assert max(high / low for low, high in pairwise(FINE_BOUNDS)) <= 1.1
    assert (FINE_BOUNDS[0], FINE_BOUNDS[-1]) == (0.0001, 1_000_000)


@pytest.mark.parametrize("middle", [0.0004, 0.002, 0.0311, 0.311, 0.333, 2.5, 47.0, 5000.0, 40_000.0])
@pytest.mark.parametrize("part", [0.5, 0.95, 0.99])
def test_a_quantile_is_within_a_tenth(middle: float, part: float) -> None:
    """Of attempts that took about this long, and of some that took much longer."""
    rng = random.Random(7)
    took = sorted(middle * rng.lognormvariate(0, 0.3) for _ in range(970)) + [middle * 20] * 30
    true = took[math.ceil(part * len(took)) - 1]
    found = lately(*counted("completed", *took)).took.quantile(part)
    assert found is not None
    assert found == pytest.approx(true, rel=0.1)


def test_only_what_completed_a_job_is_in_took_and_no_lost_attempt_in_ran() -> None:
    """A lost attempt lasts until that was noticed, which tells nothing of how long jobs take."""
    point = lately(
        *counted("completed", 0.2, 0.2, None), *counted("failed", 5.0), *counted("lost", 60.0), *counted("begun", 0.01)
    )
    assert (point.took.count, point.ran.count, point.waited.count) == (2, 3, 1)
    assert (point.lost, point.retried, point.completed) == (1, 1, 3)
    assert point.ran.seconds == pytest.approx(5.4)
    median = point.took.quantile(0.5)
    assert median == pytest.approx(0.2, rel=0.1)
    both = point + point
    assert (both.lost, both.took.count, both.took.quantile(0.5)) == (2, 4, median)


def test_what_older_versions_have_counted_is_estimated_as_before() -> None:
    """They know the other buckets only. Beside such that are known in detail, they count like these."""
    old = [each for each in counted("completed", *[0.31] * 10) if each.bucket < FINE]
    assert lately(*old).took.quantile(0.5) == pytest.approx(0.3 + 0.7 * 0.5)
    new = counted("completed", *[0.31] * 10)
    mixed = lately(*old, *new).took
    assert (mixed.count, sum(mixed.fine.values())) == (20, 10)
    assert mixed.quantile(0.99) == pytest.approx(0.31, rel=0.1)
    assert Histogram().quantile(0.99) is None
    assert lately(*counted("completed", 2e6)).took.quantile(0.5) == 1_000_000, "longer is not known"


def test_what_was_never_counted_is_not_taken_back() -> None:
    found = history_of(HistoryLook(NOW, [Tally("a", NOON, "begun", 0, -1, -0.001)]), NOON, MINUTE)
    (first, *_) = found.types["a"]
    assert (first.begun, first.waited) == (0, Histogram())


def test_tallies_are_of_minutes_and_buckets() -> None:
    at = NOON * 1_000_000
    happened: list[Happened] = [
        ("a", at + 59_999_999, "completed", 0.01, 1),
        ("a", at, "completed", -5.0, 1),
        ("a", at, "completed", None, 1),
        ("a", at, "begun", 7200.0, 1),
        ("a", at, "begun", 7200.0, -1),
    ]
    assert sorted(tallied(happened)) == [
        Tally("a", NOON, "begun", len(BOUNDS), 0, 0.0),
        Tally("a", NOON, "begun", FINE + bisect_right(FINE_BOUNDS, 7200.0), 0, 0.0),
        Tally("a", NOON, "completed", UNTIMED, 1, 0.0),
        Tally("a", NOON, "completed", 0, 1, 0.0),
        Tally("a", NOON, "completed", 1, 1, 0.01),
        Tally("a", NOON, "completed", FINE, 1, 0.0),
        Tally("a", NOON, "completed", FINE + 1 + FINE_BOUNDS.index(0.01), 1, 0.0),
    ]


def test_quantiles() -> None:
    assert Histogram().quantile(0.5) is None
    assert Histogram().mean is None
    histogram = Histogram((0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 5), 20_000.0)
    assert histogram.quantile(0) == 0.3
    assert histogram.quantile(1 / 3) == pytest.approx(0.65)
    assert histogram.quantile(2 / 3) == pytest.approx(1.0)
    assert histogram.quantile(1) == 3600.0  # and more: nothing is known beyond
    with pytest.raises(InvalidArgument, match="between 0 and 1"):
        histogram.quantile(95)


@pytest.mark.parametrize("step", [60, 300, 900, 1800, HOUR, 2 * HOUR, 12 * HOUR, DAY, 7 * DAY])
def test_steps_that_are_possible(step: int) -> None:
    assert check_step(float(step)) == step


@pytest.mark.parametrize("step", [0, 1, 61, 0.5, 7 * 60, 90 * 60, 5 * HOUR, 25 * HOUR])
def test_steps_that_are_not(step: float) -> None:
    with pytest.raises(InvalidArgument, match="divide"):
        check_step(step)


@pytest.mark.parametrize(
    ("age", "step"),
    [
        (0, 60),
        (HOUR, 60),
        (6 * HOUR, 300),
        (DAY, 900),
        (2 * DAY, 900),
        (3 * DAY, HOUR),
        (14 * DAY, 4 * HOUR),
        (30 * DAY, DAY),
    ],
)
def test_the_step_that_is_chosen_can_be_read(age: float, step: int) -> None:
    assert step_for(age) == step
    check_reach(step, age)


@pytest.mark.parametrize(("age", "step"), [(2 * DAY + 1, 60), (14 * DAY + 1, HOUR), (31 * DAY, DAY)])
def test_what_is_no_longer_kept(age: float, step: int) -> None:
    with pytest.raises(InvalidArgument, match="kept"):
        check_reach(step, age)


def test_a_point_knows_its_step() -> None:
    found = history_of(HistoryLook(NOW, []), NOON, HOUR)
    assert (found.types, found.step, found.until) == ({}, timedelta(hours=1), NOW)
    assert [point.at for point in found.total()] == [datetime(2030, 1, 1, 12, tzinfo=UTC)]
