"""How long to wait before the next try."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from queuert import Backoff, InvalidArgument
from queuert.base.backoff import JOB_BACKOFF, RECOVERY_BACKOFF, Recovery


def test_the_formula() -> None:
    backoff = Backoff(initial=3, multiplier=2, maximum=20)
    assert [backoff.delay(attempt) for attempt in range(1, 6)] == [3, 6, 12, 20, 20]


def test_the_defaults() -> None:
    assert [JOB_BACKOFF.delay(attempt) for attempt in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]
    delays = [RECOVERY_BACKOFF.delay(1) for _ in range(200)]
    assert all(0.25 <= delay <= 0.5 for delay in delays)


def test_durations_may_be_timedeltas() -> None:
    assert Backoff(initial=timedelta(minutes=1), maximum=timedelta(hours=1)).delay(3) == 240


@pytest.mark.parametrize("attempt", [1024, 1025, 10_000, 10**9])
def test_it_never_overflows(attempt: int) -> None:
    assert Backoff().delay(attempt) == 300
    assert Backoff(initial=1, multiplier=10**300, maximum=7).delay(attempt) == 7
    assert Backoff(initial=5, multiplier=1).delay(attempt) == 5


def test_jitter_only_shortens_and_spreads() -> None:
    backoff = Backoff(initial=100, multiplier=1, jitter=0.3)
    delays = [backoff.delay(1) for _ in range(500)]
    assert all(70 <= delay <= 100 for delay in delays)
    assert len(set(delays)) > 400


@pytest.mark.parametrize(
    "wrong",
    [
        {"initial": -1},
        {"initial": 0},
        {"initial": timedelta()},
        {"initial": 300.1},
        {"initial": 2, "maximum": 1},
        {"maximum": 0},
        {"initial": float("nan")},
        {"initial": "1"},
        {"maximum": float("inf")},
        {"maximum": 1e12},
        {"multiplier": 0.5},
        {"multiplier": float("inf")},
        {"multiplier": float("nan")},
        {"multiplier": "2"},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"jitter": None},
        {"jitter": True},
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Backoff(**wrong)


def test_recovery_counts_failures_in_a_row() -> None:
    recovery = Recovery(Backoff(initial=1, multiplier=2, maximum=5))
    assert [recovery.next_delay() for _ in range(4)] == [1, 2, 4, 5]
    recovery.reset()
    assert recovery.next_delay() == 1
