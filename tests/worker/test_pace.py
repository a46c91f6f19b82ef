"""Pruning keeps up with a full worker: steps are bounded, and it rests as long as it is in time."""

from __future__ import annotations

import pytest

from queuert.features.retention.pace import LONG, REST, STEP, Pace
from queuert.records.retention import Pruned

HOUR = 3600.0


def step(examined: int, took: float, behind: float = 0.0, kept: float = HOUR) -> Pruned:
    return Pruned({}, examined=examined, more=True, took=took, behind=behind, kept=kept)


def test_steps_become_larger_up_to_a_bound() -> None:
    pace = Pace()
    for _ in range(10):
        pace.rest(step(pace.limit, pace.limit * 1e-6))
    assert pace.limit == STEP[1]


def test_steps_take_as_long_as_they_may() -> None:
    pace, cost = Pace(), LONG / 300
    for _ in range(10):
        pace.rest(step(pace.limit, pace.limit * cost))
    assert pace.limit == pytest.approx(300, abs=1)


def test_chains_of_many_jobs_make_them_smaller() -> None:
    """Soon, but not because of one step that was slow."""
    pace = Pace()
    for _ in range(10):
        pace.rest(step(pace.limit, pace.limit * 1e-5))
    pace.rest(step(pace.limit, 2.0))
    assert pace.limit == STEP[1]
    for _ in range(8):
        pace.rest(step(pace.limit, pace.limit * 1.0))
    assert pace.limit == STEP[0]


def test_it_rests_less_when_it_is_late() -> None:
    pace = Pace()
    rests = [pace.rest(step(100, 0.01, behind)) / 0.01 for behind in (0.0, 360.0, 540.0, 720.0, 1e9)]
    assert rests == pytest.approx([REST[1], REST[1], (REST[0] + REST[1]) / 2, REST[0], REST[0]])


def test_an_error_makes_steps_smaller() -> None:
    pace = Pace()
    for _ in range(20):
        pace.failed()
    assert pace.limit == STEP[0]


@pytest.mark.parametrize(("ended", "answer", "kept"), [(500, 0.1, 4.0), (2000, 0.2, 4.0), (2000, 0.2, HOUR)])
def test_it_keeps_up_with_what_ends(ended: float, answer: float, kept: float) -> None:
    """So many chains end in a second. Each answer reaches the full worker late, and every second step takes five times
    as long, because the processors are busy. An hour of virtual time.
    """
    pace, now, done, most = Pace(), 0.0, 0.0, 0.0
    number = 0
    while now < HOUR:
        number += 1
        due = ended * now
        examined = min(pace.limit, int(due - done))
        if examined == 0:
            now += 1.0
            continue
        done += examined
        took = examined * 3e-5 * (5 if number % 2 else 1)
        behind = (due - done) / ended
        most = max(most, behind)
        now += took + answer + pace.rest(step(examined, took, behind, kept))
    assert most < max(10.0, kept * 0.2)  # and not an hour, as with steps of ten chains
