"""Which tests run with which adapters: the rule, in one place.

1. Every test runs where the operations differ: with memory, with SQLite, and with PostgreSQL by
   one driver, psycopg.
2. Tests about what a driver can get wrong run with every driver: about transactions, values,
   errors, cancellation, lost connections and concurrency. In the conformance suite these are the
   cases that `only="@driver"` chooses. Elsewhere they are marked `drivers`. A driver that hands the
   same statements to the same module of Python as another one can only get transactions wrong:
   see `tests/conformance/driver_tests.py`.
3. Tests about what a channel can get wrong run with every channel. They are marked `channels`:
   tests in which a worker or a waiter is woken, and tests in which the channel fails.
4. The `queuert` command is one program over the client. Its tests run with SQLite. For each command,
   one or two are marked `drivers`, and run with PostgreSQL too.
5. Parameters of a test's own are spread: the first values run with all that these rules choose, the
   others in turn with memory or SQLite, and in turn with one driver of PostgreSQL or the other. In the
   same way tests of a client take turns with its kinds, and tests of PostgreSQL with its drivers.
6. Tests about the worker alone take turns with the databases: about handlers, middleware, retries,
   when to stop, when schedules fire. They are marked `in_turn`. All of them run with memory, and each
   with either SQLite or PostgreSQL. What they ask of a database, the conformance suite asks of both.
7. `make soak` runs every test with every combination.
8. `make test-postgres VERSION=14` runs, with another version of the server, what is marked `postgres`: the tests that
   are named after PostgreSQL or one of its drivers (their file, their own name or a parameter), and those that use one
   of the fixtures of `tests/support/postgres.py`.
9. Coverage is measured once: it makes a test half as slow again, and the same lines run with each
   adapter. See `REPEATED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
TESTS = Path(__file__).parents[1]


class Soak:
    """Most combinations are soak. They are collected only where they are not deselected again."""

    is_collected = True

    @classmethod
    def configure(cls, config: pytest.Config) -> None:
        cls.is_collected = "not soak" not in config.option.markexpr


def parametrize(
    metafunc: pytest.Metafunc,
    fixture: str,
    *,
    always: Sequence[T],
    drivers: Iterable[T] = (),
    channels: Iterable[T] = (),
    soak: Iterable[T] = (),
    ids: Any = None,
) -> None:
    """Give a fixture its parameters by the rule, if the test uses it. The others are soak."""
    if fixture not in metafunc.fixturenames:
        return
    chosen = list(always)
    for marker, more in (("drivers", drivers), ("channels", channels)):
        if metafunc.definition.get_closest_marker(marker):
            chosen += [each for each in more if each not in chosen]
    rest = dict.fromkeys([*drivers, *channels, *soak]) if Soak.is_collected else {}
    parameters = [
        *(pytest.param(each, id=ids and ids(each)) for each in chosen),
        *(pytest.param(each, id=ids and ids(each), marks=pytest.mark.soak) for each in rest if each not in chosen),
    ]
    metafunc.parametrize(fixture, parameters, indirect=True)


def spread(items: Iterable[pytest.Item], fixture: str, groups: Sequence[Sequence[T]], ids: Callable[[T], str]) -> None:
    """Mark what rule 5 leaves to soak. In each group, one takes its turn, of those that the test has."""
    tests: dict[tuple[Path, str], list[tuple[pytest.Item, Any]]] = {}
    for item in items:
        called: Any = getattr(item, "callspec", None)
        if called is not None and fixture in called.params and not item.get_closest_marker("soak"):
            tests.setdefault((item.path, getattr(item, "originalname", item.name)), []).append((item, called))
    for runs in tests.values():
        numbers: dict[str, int] = {}
        has = [called.params[fixture] for _, called in runs]
        for item, called in runs:
            value = called.params[fixture]
            group = next(([each for each in group if each in has] for group in groups if value in group), None)
            if group is None:
                continue
            own = called.id.replace(ids(value), "", 1)
            number = numbers.setdefault(own, len(numbers))
            turn = number.bit_count() % len(group)  # not always the same of two values of a parameter
            if number > 0 and value != group[turn]:
                item.add_marker(pytest.mark.soak)


def take_turns(items: Iterable[pytest.Item], fixture: str, group: Sequence[T], ids: Callable[[T], str]) -> None:
    """Mark what rule 6 leaves to soak: of the group, each test runs with one."""
    numbers: dict[tuple[Path, str, str], int] = {}
    for item in items:
        called: Any = getattr(item, "callspec", None)
        if called is None or called.params.get(fixture) not in group or item.get_closest_marker("soak"):
            continue
        value = called.params[fixture]
        own = called.id.replace(ids(value), "", 1)
        number = numbers.setdefault((item.path, getattr(item, "originalname", item.name), own), len(numbers))
        if value != group[number.bit_count() % len(group)]:
            item.add_marker(pytest.mark.soak)


POSTGRES_NAMES = ("postgres", "psycopg", "asyncpg")
POSTGRES_FIXTURES = {"postgres", "database_url", "migrated_url", "own_server"}


def mark_postgres(items: Iterable[pytest.Item]) -> None:
    """Rule 8."""
    for item in items:
        uses: set[str] = {*getattr(item, "fixturenames", ())}
        if any(name in item.nodeid for name in POSTGRES_NAMES) or uses & POSTGRES_FIXTURES:
            item.add_marker(pytest.mark.postgres)


REPEATED = {
    "behaviour": ("memory+", "sqlite+", "asyncpg+", "asyncpg", "psycopg"),
    "conformance/test_postgres.py": ("",),
    "conformance/test_sqlalchemy.py": ("",),
    "conformance/test_django.py": ("",),
    "conformance/test_mutants.py": ("",),
    "fuzz": ("",),
    "machine": ("",),
    "matrix": ("",),
    "brokers": ("",),
}
"""Where the same lines are run as elsewhere: places in `tests/`, and how a part of a test's parameters begins."""


def leave_out_of_coverage(items: Iterable[pytest.Item]) -> None:
    for path, those in groupby(items, key=lambda item: item.path):
        place = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""
        beginnings = next((found for directory, found in REPEATED.items() if place.startswith(directory)), None)
        if beginnings is None:
            continue
        for item in those:
            called: Any = getattr(item, "callspec", None)
            parts = [""] if called is None else called.id.split("-")
            repeated = [part for part in parts if part.startswith(beginnings)]
            if item.get_closest_marker("in_turn"):  # PostgreSQL runs with others
                repeated = [part for part in repeated if not part.startswith("sqlite+")]
            if repeated:
                item.add_marker(pytest.mark.no_cover)
