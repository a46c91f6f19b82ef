"""What the listings of SQL adapters share.

A listing is read in one statement, from the inside out:

- *Branches* walk along indexes. Each returns the ids of rows.
- `scanned` merges the branches, sorts and numbers the rows, and stops after `bound` of them.
- `page` has the rows that match the filters that the branches do not serve, up to the limit. It
  also has row number `bound`, so that the next page can begin after it.
- For the rows of the page, all columns are read by their ids.

The rows are tested lazily: reading stops when the page is full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from queuert.records.listings import ChainFilter, JobFilter, Listed, PageRequest

Row = TypeVar("Row")

EVERYTHING = frozenset(("everything",))
"""Of a branch that tests all filters itself."""


class Branch(msgspec.Struct):
    """A walk along one index: a SELECT with the column `id`."""

    text: str
    served: frozenset[str] = frozenset()
    """The filters that all its rows match."""


def served_by(branches: Sequence[Branch]) -> frozenset[str]:
    """The filters that need not be tested."""
    first, *others = branches
    return first.served.intersection(*(each.served for each in others))


def not_served(where: JobFilter, served: frozenset[str], texts: Mapping[str, str]) -> list[str]:
    """Of these texts, by the names of fields and properties, the filters that are given and not
    `served` otherwise.
    """
    if served >= EVERYTHING:
        return []
    return [
        text for name, text in texts.items() if name not in served and getattr(where, name, None) not in (None, False)
    ]


def tests_current_jobs(where: JobFilter) -> bool:
    """Whether the rows of chains are those of their current jobs, and not of their first ones."""
    return isinstance(where, ChainFilter) and (
        where.by_current or where.job_ids is not None or where.chain_ids is not None
    )


def bound_of(page: PageRequest, *, tests: bool) -> int:
    """How many rows a page may read."""
    return max(page.limit, page.examine) if tests else page.limit


def beyond(page: PageRequest) -> str:
    """The rows of the page compared with the cursor."""
    return ">" if page.order == "asc" else "<"


def listed(
    rows: Sequence[Sequence[Any]], page: PageRequest, make: Callable[[Sequence[Any]], Row], key: Callable[[Row], str]
) -> Listed[Row]:
    """The page from its rows. Each begins with two flags: that it matches, and that it is the last
    one that was read.
    """
    found: list[Row] = []
    stopped_at: str | None = None
    for matches, is_last, *columns in rows:
        row = make(columns)
        if matches:
            found.append(row)
        if is_last and len(found) < page.limit:
            stopped_at = key(row)
    return Listed(found, stopped_at)
