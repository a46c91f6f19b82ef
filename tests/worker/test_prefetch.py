"""How far ahead a worker claims: from numbers and times alone."""

from __future__ import annotations

import pytest

from queuert.worker.policy.prefetch import HOLD, Prefetch


def after(slots: int, most: int, *turns: tuple[int, float]) -> Prefetch:
    """One that has seen so many handlers end in so many seconds, turn after turn."""
    prefetch = Prefetch(slots, most, 100.0)
    prefetch.busy(100.0)
    now, ended = 100.0, 0
    for number, seconds in turns:
        now, ended = now + seconds, ended + number
        prefetch.observe(ended, now)
    return prefetch


def test_nothing_is_known_at_first() -> None:
    assert after(10, 1000).ahead == 0
    assert after(10, 1000, (1000, 0.1)).ahead == 0, "one fast moment says little"


def test_as_much_as_is_worked_off_while_it_may_be_held() -> None:
    assert after(10, 1000, (500, 0.1), (500, 0.1)).ahead == int(5000 * HOLD)


def test_the_slower_of_the_last_two_counts() -> None:
    assert after(10, 1000, (200, 0.1), (500, 0.1)).ahead == int(2000 * HOLD)
    assert after(10, 1000, (500, 0.1), (200, 0.1)).ahead == int(2000 * HOLD)


def test_never_more_than_allowed() -> None:
    assert after(10, 50, (5000, 0.1), (5000, 0.1)).ahead == 50
    assert after(10, 0, (5000, 0.1), (5000, 0.1)).ahead == 0


@pytest.mark.parametrize(("slots", "ahead"), [(99, 100), (100, 100), (101, 0)])
def test_none_unless_every_slot_turns_over_meanwhile(slots: int, ahead: int) -> None:
    assert after(slots, 1000, (100, HOLD), (100, HOLD)).ahead == ahead


@pytest.mark.parametrize(("slots", "refill_at"), [(10, 250), (300, 200), (500, 0)])
def test_the_next_claim_is_worth_its_round_trip(slots: int, refill_at: int) -> None:
    assert after(slots, 1000, (500, 0.1), (500, 0.1)).refill_at == refill_at


def test_an_idle_time_is_forgotten_fast() -> None:
    assert after(10, 1000, (500, 0.1), (500, 0.1), (10, 60.0)).ahead == 0


def test_after_a_stall_two_good_moments_are_needed() -> None:
    prefetch = after(10, 1000, (500, 0.1), (500, 0.1))
    prefetch.stalled()
    assert prefetch.ahead == 0
    prefetch.observe(1500, 100.3)
    assert prefetch.ahead == 0
    prefetch.observe(2000, 100.4)
    assert prefetch.ahead > 0


def test_a_moment_is_too_short_to_tell() -> None:
    assert after(10, 1000, (500, 0.1), (500, 0.1), (0, 0.0001)).ahead == 500


def test_the_moment_that_a_claim_takes_does_not_count() -> None:
    prefetch = after(10, 1000, (500, 0.1), (500, 0.1))
    prefetch.idle(100.2)
    prefetch.observe(1000, 100.25)
    assert prefetch.ahead == 500, "nothing ran, so nothing was seen"
    prefetch.busy(100.28)
    prefetch.observe(1100, 100.3)
    assert prefetch.ahead == pytest.approx(500, abs=1), "a hundred in 0.02 s"


def test_a_moment_that_is_not_over_does_not_count_either() -> None:
    prefetch = after(10, 1000, (500, 0.1))
    prefetch.idle(100.18)
    prefetch.observe(900, 100.2)
    assert prefetch.ahead == pytest.approx(500, abs=1)
    prefetch.busy(100.22)
    prefetch.observe(1000, 100.24)
    assert prefetch.ahead == pytest.approx(500, abs=1)


def test_a_time_with_nothing_to_do_counts() -> None:
    prefetch = after(10, 1000, (500, 0.1), (500, 0.1))
    prefetch.idle(100.2)
    prefetch.busy(160.2)
    prefetch.observe(1010, 160.21)
    assert prefetch.ahead == 0
