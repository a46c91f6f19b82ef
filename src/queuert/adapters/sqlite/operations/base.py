"""What every operation uses: the statements for the tables of one prefix, and the clock."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from queuert.adapters.sql.migrate import Migration, load_migrations
from queuert.adapters.sql.statement import Statement, Text, check_prefix, load_statements
from queuert.adapters.sqlite.operations.rows import columns_of, micros
from queuert.errors import InvalidArgument
from queuert.records.model import ALONE_AFTER, NOT_BEGUN

Clock = Callable[[], datetime]

_encode = msgspec.json.encode


def array(values: Any) -> str:
    """A list of plain values as one parameter. `json_each` turns it into rows."""
    return _encode(values).decode()


def utc_now() -> datetime:
    return datetime.now(UTC)


class BaseOperations:
    """SQLite has no server, so the host's clock is the database's clock, and statements take "now"
    as a parameter. Each operation reads the clock once, after it has the write lock.
    """

    def __init__(self, table_prefix: str = "queuert_", clock: Clock | None = None) -> None:
        if check_prefix(table_prefix).lower().startswith("sqlite_"):
            raise InvalidArgument(
                f"table_prefix must not begin with sqlite_, which SQLite reserves, got {table_prefix!r}"
            )
        self.prefix = table_prefix
        self._clock = clock or utc_now
        self._texts = statements_for(table_prefix)
        self.cursors: dict[str, str] = {}
        """For each limit, the last lane that a claim has looked at, if there may be more."""

    def stores_id(self, job_id: str) -> bool:  # noqa: ARG002
        return True

    def now(self) -> int:
        """In microseconds since 1970."""
        return micros(self._clock())

    def statement(self, name: str, **parameters: Any) -> Statement:
        text = self._texts[name]
        return Statement(text.text, parameters, text.writes)


@lru_cache(maxsize=16)
def replacements_for(prefix: str) -> dict[str, str]:
    return {
        "prefix": prefix,
        "alone_after": str(ALONE_AFTER),
        "not_begun": str(NOT_BEGUN),
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
