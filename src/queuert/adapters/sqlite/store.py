"""What every operation works with: the statements for one table prefix, and the clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from queuert.adapters.sqlite.rows import columns_of, micros
from queuert.errors import InvalidArgument
from queuert.sql.migrate import Migration, load_migrations
from queuert.sql.statement import Statement, Text, check_prefix, load_statements

Clock = Callable[[], datetime]

_encode = msgspec.json.encode


def array(values: Any) -> str:
    """A list of plain values as one parameter: `json_each` makes rows of it again."""
    return _encode(values).decode()


def utc_now() -> datetime:
    return datetime.now(UTC)


class Store:
    """The tables of one prefix.

    SQLite has no server, so the host's clock is the database's clock: statements take "now" as a parameter. It is
    read once for each operation, after the write lock was taken, and a test can put another clock in its place.
    """

    __slots__ = ("clock", "prefix", "texts")

    def __init__(self, prefix: str, clock: Clock | None) -> None:
        self.prefix = table_prefix(prefix)
        self.clock: Clock = clock or utc_now
        self.texts = statements_for(self.prefix)

    def now(self) -> int:
        return micros(self.clock())

    def __call__(self, name: str, **parameters: Any) -> Statement:
        """The named statement, ready to be yielded."""
        text = self.texts[name]
        return Statement(text.text, parameters, text.writes)


def table_prefix(prefix: str) -> str:
    """SQLite keeps names that begin with `sqlite_` for itself."""
    if check_prefix(prefix).lower().startswith("sqlite_"):
        raise InvalidArgument(f"table_prefix must not begin with sqlite_, got {prefix!r}")
    return prefix


@lru_cache(maxsize=16)
def replacements_for(prefix: str) -> dict[str, str]:
    return {
        "prefix": prefix,
        "job_columns": columns_of("job"),
        "first_columns": columns_of("first"),
        "current_columns": columns_of("current"),
        "returned_columns": columns_of(None),
        "current_of_first": (
            f"(SELECT last.rowid FROM {prefix}job AS last WHERE last.chain_id = first.id "
            "ORDER BY last.chain_index DESC LIMIT 1)"
        ),
    }


@lru_cache(maxsize=16)
def statements_for(prefix: str) -> dict[str, Text]:
    return load_statements("queuert.adapters.sqlite.statements", replacements_for(prefix))


@lru_cache(maxsize=16)
def migrations_for(prefix: str) -> tuple[Migration, ...]:
    return load_migrations("queuert.adapters.sqlite.migrations", replacements_for(prefix))
