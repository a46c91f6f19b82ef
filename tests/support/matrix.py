"""Which tests run with which adapters: the rule, in one place.

1. Every test runs where the operations differ: with memory, with SQLite, and with PostgreSQL by
   one driver, psycopg.
2. Tests about what a driver can get wrong run with every driver: about transactions, values,
   errors, cancellation, lost connections and concurrency. In the conformance suite these are the
   cases that `only="@driver"` chooses. Elsewhere they are marked `drivers`.
3. Tests about what a channel can get wrong run with every channel. They are marked `channels`:
   tests in which a worker or a waiter is woken, and tests in which the channel fails.
4. `make soak` runs every test with every combination.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


class Soak:
    """Most combinations are soak. They are collected only where they are not deselected again."""

    is_collected = True

    @classmethod
    def configure(cls, config: pytest.Config) -> None:
        cls.is_collected = config.option.markexpr != "not soak"


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
