"""Counts that end at a bound, so that a look at a very full database is as quick as any other."""

from __future__ import annotations

from collections.abc import Iterable

BOUND = 10_000
"""Jobs of one type and status are counted up to here."""


class Count:
    """A number of jobs, or a lower bound of it."""

    def __init__(self, number: int, *, at_least: bool = False) -> None:
        self.number = number
        self.at_least = at_least

    @classmethod
    def up_to(cls, bound: int | None, number: int) -> Count:
        """What was counted with a limit of one more than the bound. None: without a limit."""
        return cls(number) if bound is None or number <= bound else cls(bound, at_least=True)

    def __str__(self) -> str:
        return f"{self.number:,}{'+' * self.at_least}"


def total(counts: Iterable[Count]) -> Count:
    found = list(counts)
    return Count(sum(each.number for each in found), at_least=any(each.at_least for each in found))
