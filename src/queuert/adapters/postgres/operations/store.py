"""The names of one installation's tables and functions, and the statements made with them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import msgspec

from queuert.adapters.postgres.command import PgStatement, PgText, load_pg_statements
from queuert.adapters.postgres.operations import rows
from queuert.errors import InvalidArgument
from queuert.sql.statement import check_prefix, sql_files, strip_comments, substitute

_TABLES = ("job", "ready", "later", "running", "blocker", "key")
_INDEXES = (
    "job_chain", "job_type", "job_first", "job_resting", "job_resting_type", "job_resting_chain", "blocker_chain",
    "key_chain",
)  # fmt: skip
_FUNCTIONS = (
    "lock_in_flight", "lock_jobs", "land", "launch", "lock_current", "check_edges", "count_edges", "add_edges",
    "unblock", "blockers_of", "read_jobs", "read_chains", "next_available_in", "insert_jobs", "take_key",
    "create_or_raise", "create_jobs", "begin_chains",
    "promote", "change_room", "marks", "claim", "renew", "hold", "reap", "complete", "settle",
    "get_chains_locked", "trigger", "retry", "chains_to_delete", "delete_chains",
)  # fmt: skip
_BODY = re.compile(r"(\$body\$.*?\$body\$)", re.DOTALL)
_UNFIT = re.compile(r'["\x00-\x1f\x7f]|\$body\$|--|/\*')
_LONGEST = 63
"""Bytes in a name: PostgreSQL cuts off the rest without a word."""

ADVISORY_SPACE = 0x71756575
"""The first half of our advisory locks' keys ("queu"); the second is made from a name."""

FIRST = "{}.chain_index <= 0"
"""That a job is the first of its chain, said so that PostgreSQL does not see the index of first jobs in it: with a plan
made for small tables it would walk through the whole of that for one id."""

STEADY = " ".join(
    f"SET {setting}"
    for setting in (
        "plan_cache_mode TO force_generic_plan",
        "enable_seqscan TO off",
        "enable_bitmapscan TO off",
        "enable_hashjoin TO off",
        "enable_mergejoin TO off",
        "jit TO off",
    )
)
"""For functions: plans that do not depend on how full the tables are when a session first needs them."""

DATABASE_CLOCK = "clock_timestamp()"
"""Not now(): in a long transaction that is the time when it began."""


class Migration(msgspec.Struct, frozen=True):
    version: int
    statements: tuple[str, ...]


class Installation(msgspec.Struct, frozen=True):
    """A schema and a prefix: two of them in one database know nothing of each other."""

    schema: str
    prefix: str
    clock: str = DATABASE_CLOCK

    def __post_init__(self) -> None:
        check_prefix(self.prefix)
        if not 1 <= len(self.schema.encode()) <= _LONGEST or _UNFIT.search(self.schema):
            raise InvalidArgument(
                "schema must be 1 to 63 bytes without double quotes, comment marks and control characters, "
                f"got {self.schema!r}"
            )

    def name(self, what: str) -> str:
        return f'"{self.schema}"."{self.prefix}{what}"'

    def words(self) -> dict[str, str]:
        """What the words in braces in the `.sql` files stand for."""
        first, current = rows.columns("first", "first_run"), rows.columns("current", "current_run")
        source = (
            "FROM unnest(p_ids::uuid[]) AS asked_id "
            f"JOIN {self.name('job')} AS first ON first.id = asked_id AND {FIRST.format('first')} "
            f"LEFT JOIN {self.name('running')} AS first_run ON first_run.job_id = first.id "
            f"CROSS JOIN LATERAL (SELECT last.* FROM {self.name('job')} AS last WHERE last.chain_id = first.id "
            "ORDER BY last.chain_index DESC LIMIT 1) AS current "
            f"LEFT JOIN {self.name('running')} AS current_run ON current_run.job_id = current.id"
        )
        return {
            **{table: self.name(table) for table in _TABLES},
            **{index: f'"{self.prefix}{index}"' for index in _INDEXES},
            **{function: self.name(function) for function in _FUNCTIONS},
            "token": self.name("token"),
            "schema_version": self.name("schema_version"),
            "schema": f'"{self.schema}"',
            "clock": self.clock,
            "lock_space": str(ADVISORY_SPACE),
            "lock_name": _in_string(f"{self.schema}/{self.prefix}/"),
            "token_name": f"'{_in_string(self.name('token'))}'",
            "ready_key": f"'{_in_string(self.name('ready_pkey'))}'",
            "steady": STEADY,
            "is_first": FIRST.format("j"),
            "job_columns": rows.columns(),
            "job_types": rows.column_types(),
            "chain_types": f"{rows.column_types('first_')}, {rows.column_types('current_')}",
            "no_chain_columns": f"{rows.no_columns()}, {rows.no_columns()}",
            "first_columns": first,
            "current_columns": current,
            "chains_query": f"SELECT {first}, {current} {source}",
        }


def _in_string(text: str) -> str:
    """As it stands between single quotes in SQL."""
    return text.replace("'", "''")


@lru_cache(maxsize=16)
def statements_for(installation: Installation) -> dict[str, PgText]:
    return load_pg_statements("queuert.adapters.postgres.statements", installation.words())


@lru_cache(maxsize=16)
def migrations_for(installation: Installation) -> tuple[Migration, ...]:
    words = installation.words()
    return tuple(
        Migration(int(stem.partition("_")[0]), split_script(substitute(source, words, f"{stem}.sql")))
        for stem, source in sql_files("queuert.adapters.postgres.migrations")
    )


def split_script(script: str) -> tuple[str, ...]:
    """The statements of a script: they end with a semicolon at the end of a line, outside of function bodies."""
    statements: list[str] = []
    unfinished = ""
    for part in _BODY.split(strip_comments(script)):
        if part.startswith("$body$"):
            unfinished += part
            continue
        *finished, rest = re.split(r";\n", part)
        for text in finished:
            statements.append((unfinished + text).strip())
            unfinished = ""
        unfinished += rest
    return (*statements, unfinished.strip().removesuffix(";")) if unfinished.strip() else tuple(statements)


class Store:
    """The statements of one installation.

    `marks`: how far claims have come in each type, while dead index entries make it worth knowing (`{claim}`).
    """

    __slots__ = ("installation", "marks", "texts", "words")

    def __init__(self, installation: Installation) -> None:
        self.installation = installation
        self.texts = statements_for(installation)
        self.words = installation.words()
        self.marks: dict[str, msgspec.Raw] = {}

    def __call__(self, name: str, **parameters: Any) -> PgStatement:
        """The named statement, ready to be yielded."""
        return self.texts[name](**parameters)
