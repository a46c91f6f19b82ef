"""Which workers claim at once what was announced, and when the others do."""

from __future__ import annotations

import pytest

from queuert.ports.notify import Draw
from queuert.worker.claims.crowd import AT_ONCE, EARLIEST, LATEST, Crowd


def member(place: int, number: int) -> Crowd:
    """A worker that knows its place."""
    one = Crowd.__new__(Crowd)
    one._places, one._later_at = {"step": (place, number)}, 0.0
    return one


@pytest.mark.parametrize("number", [0, 7, 99, 2**31 - 1])
@pytest.mark.parametrize("jobs", [1, 10, 98, 1000])
def test_a_few_are_first_and_the_others_follow_one_by_one(number: int, jobs: int) -> None:
    waits = sorted(member(place, 100).wait_for("step", Draw(number, jobs)) for place in range(100))
    first = min(100, AT_ONCE - 1 + jobs)
    assert waits[:first] == [0.0] * first
    others = 100 - first
    assert waits[first:] == pytest.approx([EARLIEST + (LATEST - EARLIEST) * n / others for n in range(others)])


def test_many_announcements_do_not_make_one_that_waits_claim_more_often() -> None:
    last = member(99, 100)
    waits = [last.wait_for("step", Draw(number, 1)) for number in range(4, 90)]
    assert all(waits)
    assert waits == sorted(waits, reverse=True)  # all for one moment, which comes closer


@pytest.mark.parametrize("number", range(1, AT_ONCE + 1))
def test_few_workers_all_claim(number: int) -> None:
    assert not any(member(place, number).wait_for("step", Draw(1, 1)) for place in range(number))


@pytest.mark.parametrize(
    ("type_name", "draw"), [("step", None), ("other", Draw(50, 1))], ids=["from an older version", "of an unknown type"]
)
def test_without_a_draw_or_a_place_everybody_claims(type_name: str, draw: Draw | None) -> None:
    assert member(50, 100).wait_for(type_name, draw) == 0.0


def test_a_place_that_does_not_count_the_worker_itself() -> None:
    """It has not registered in time, and is still here."""
    assert member(100, 100).wait_for("step", Draw(0, 1)) == 0.0
