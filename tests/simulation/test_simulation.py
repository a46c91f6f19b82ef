"""Client, worker and storage on a simulated loop: the seed decides every delay, fault, crash and interleaving.

A failure names the smallest plan that fails, too. To see it again: `run(Plan(…), folder)`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from tests.simulation.bugs import BUGS, planted
from tests.simulation.loop import Stuck
from tests.simulation.plan import Plan, Storage, shrink
from tests.simulation.world import Violation, run

SEEDS: dict[Storage, int] = {"memory": 20, "sqlite": 3, "postgres": 1}
MANY: dict[Storage, int] = {"memory": 10_000, "sqlite": 500, "postgres": 200}
PART: dict[Storage, int] = {"memory": 10, "sqlite": 3, "postgres": 1}
"""Seeds of one test."""
TRIES = 40
"""Seeds within which a planted bug must be found."""
ON_POSTGRES = [
    "leases are far too short",
    "the cap of a queue is forgotten",
    "a phase does not check the claim",
    "leases are not renewed",
]
"""Bugs of the worker that few seeds on PostgreSQL show, too: each of them takes seconds."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of faults would be logged."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def violation(plan: Plan, folder: Path) -> AssertionError | None:
    try:
        run(plan, folder)
    except (Violation, Stuck) as error:
        return error
    return None


def check(plan: Plan, folder: Path) -> None:
    found = violation(plan, folder)
    if found is not None:
        smallest = shrink(plan, lambda each: violation(each, folder) is not None)
        notes = "\n".join(getattr(found, "__notes__", ()))
        pytest.fail(f"{found}\nplan: {plan}\nthe smallest that fails: {smallest}\n{notes}")


def parts(seeds: dict[Storage, int]) -> list[tuple[Storage, int]]:
    return [(storage, first) for storage in get_args(Storage) for first in range(0, seeds[storage], PART[storage])]


@pytest.mark.parametrize(("storage", "first"), parts(SEEDS))
def test_what_is_promised_is_kept(storage: Storage, first: int, tmp_path: Path) -> None:
    for seed in range(first, first + PART[storage]):
        check(Plan.of(seed, storage), tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("storage", get_args(Storage))
def test_many_times(storage: Storage, tmp_path: Path) -> None:
    for seed in range(SEEDS[storage], MANY[storage]):
        check(Plan.of(seed, storage), tmp_path)


@pytest.mark.parametrize("storage", ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.soak)])
def test_a_seed_is_one_run(storage: Storage, tmp_path: Path) -> None:
    plan = Plan(4, storage, kills=2, stops=1, jumps=1, lost=0.05, unheard=0.2)
    digests = []
    for place in ("first", "second"):
        folder = tmp_path / place
        folder.mkdir()
        digests.append(run(plan, folder))
    assert digests[0] == digests[1]
    folder = tmp_path / "other"
    folder.mkdir()
    assert run(Plan(5, storage, kills=2, stops=1, jumps=1, lost=0.05, unheard=0.2), folder) != digests[0]


@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=() if place % 3 == 0 else pytest.mark.soak) for place, bug in enumerate(BUGS)]
)
def test_planted_bugs_are_found(bug: str, tmp_path: Path) -> None:
    find(bug, "memory", TRIES, tmp_path)


@pytest.mark.parametrize(
    "bug", [ON_POSTGRES[0], *(pytest.param(bug, marks=pytest.mark.soak) for bug in ON_POSTGRES[1:])]
)
def test_planted_bugs_are_found_on_postgresql(bug: str, tmp_path: Path) -> None:
    find(bug, "postgres", 10, tmp_path)


def find(bug: str, storage: Storage, tries: int, folder: Path) -> None:
    plan = replace(BUGS[bug].plan, storage=storage)
    with planted(bug):
        found = any(violation(plan.with_seed(seed), folder) is not None for seed in range(tries))
    assert found, f"no seed of {tries} shows it"


def test_a_failure_is_made_smaller(tmp_path: Path) -> None:
    plan = Plan(3, workers=3, actions=25, kills=4, stops=2, jumps=3, lost=0.05, unheard=0.2)
    with planted("delays are forgotten"):
        smallest = shrink(plan, lambda each: violation(each, tmp_path) is not None)
        assert violation(smallest, tmp_path) is not None
    assert (smallest.kills, smallest.stops, smallest.jumps, smallest.lost, smallest.unheard) == (0, 0, 0, 0, 0)
    assert smallest.actions < plan.actions
