"""One installation: the names of its tables and functions, and the SQL made with them.

The functions are one set. Its digest is part of their names, so that sets of several library
versions work in one database at the same time. It is computed from the text of all functions, after
all replacements except the digest itself.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache

import msgspec

from queuert.adapters.postgres import rows
from queuert.adapters.postgres.command import PgText, load_pg_statements
from queuert.adapters.sql.migrate import Migration, load_migrations
from queuert.adapters.sql.statement import check_prefix, sql_files, strip_comments, substitute
from queuert.base.arguments import EARLIEST, LATEST, LONGEST
from queuert.errors import InvalidArgument
from queuert.records.failed_attempts import KEPT
from queuert.records.history import BOUNDS, DETAILS, FINE, FINE_BOUNDS, HOURS_KEPT, MINUTES_KEPT, UNTIMED
from queuert.records.history import KEPT as HISTORY_KEPT
from queuert.records.limits import ALIVE_FOR, NAMED
from queuert.records.model import ALONE_AFTER, NOT_BEGUN
from queuert.records.retention import (
    ARCHIVE_AGAIN,
    LOOK_AGAIN,
    LOOK_AGAIN_NEEDED,
    LOOK_AGAIN_OPEN,
    LOOK_AGAIN_PART,
    SLACK,
)

_PACKAGE = "queuert.adapters.postgres"
_CREATED = re.compile(r"^CREATE (?:OR REPLACE |UNIQUE )?([A-Z]+) (?:IF NOT EXISTS )?\{(\w+)\}", re.MULTILINE)
_UNFIT = re.compile(r'["\x00-\x1f\x7f]|\$body\$|--|/\*')
_LONGEST = 63
"""Bytes in a name: PostgreSQL cuts off the rest without an error."""

ADVISORY_SPACE = 0x71756575
"""The first half of the keys of our advisory locks ("queu"); the second is made from a name."""

WORKER_SPACE = 0x71756577
"""The same for the locks that workers hold ("quew"). They are held for as long as a worker runs. So
none of the other locks may ever have the same key."""

SERVER_RUN = "greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time())"
"""The time since which the server has run without an interruption that ended all sessions. If one
of its processes crashes, it ends all sessions, but the postmaster goes on; only its activity
statistics start again.
"""

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
"""For functions: plans that do not depend on how full the tables are when a session first needs
them."""

DATABASE_CLOCK = "clock_timestamp()"
"""Not now(): in a long transaction that is the time when it began."""


class FunctionSet(msgspec.Struct, frozen=True):
    """The functions of this version of the library, for one installation."""

    digest: str
    names: list[str]
    statements: list[str]


class Installation(msgspec.Struct, frozen=True):
    """A schema and a prefix. Two installations in one database are independent of each other."""

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

    def tables(self) -> list[str]:
        """All its tables. Partitions that functions make later are not among them."""
        return list(dict.fromkeys(self.name(what) for kind, what in _created() if kind == "TABLE"))

    def words(self) -> dict[str, str]:
        """The replacements for the words in braces in the `.sql` files."""
        return self.words_with(f"_{functions_for(self).digest}")

    def words_with(self, suffix: str) -> dict[str, str]:
        """The words, with function names that end in `suffix`."""
        words = {
            what: f'"{self.prefix}{what}"' if kind == "INDEX" else self.name(what + suffix * (kind == "FUNCTION"))
            for kind, what in _created()
        }
        words["version_6"] = self.name("schema_version")
        return {
            **words,
            **{f"{what}_text": _literal(name) for what, name in words.items()},
            "prefix": self.prefix,
            "schema": f'"{self.schema}"',
            "schema_name": _literal(self.schema),
            "schema_text": _literal(f'"{self.schema}"'),
            "clock": self.clock,
            "lock_space": str(ADVISORY_SPACE),
            "server_run": SERVER_RUN,
            "worker_space": str(WORKER_SPACE),
            "lock_name": _literal(f"{self.schema}/{self.prefix}/")[1:-1],
            "ready_key": _literal(self.name("ready_pkey")),
            "steady": STEADY,
            "earliest": f"'{EARLIEST}'",
            "latest": f"'{LATEST}'",
            "longest": str(LONGEST),
            "attempts_kept": str(KEPT),
            "alive_for": str(ALIVE_FOR),
            "alone_after": str(ALONE_AFTER),
            "not_begun": str(NOT_BEGUN),
            "named": str(NAMED),
            "archive_again": str(ARCHIVE_AGAIN),
            "look_again_least": str(LOOK_AGAIN),
            "look_again_part": str(LOOK_AGAIN_PART),
            "look_again_needed": str(LOOK_AGAIN_NEEDED),
            "look_again_open": str(LOOK_AGAIN_OPEN),
            "bounds": f"ARRAY[{', '.join(map(str, BOUNDS))}]::double precision[]",
            "fine_bounds": f"ARRAY[{', '.join(map(str, FINE_BOUNDS))}]::double precision[]",
            "details": str(DETAILS),
            "first_fine": str(FINE),
            "untimed": str(UNTIMED),
            "minutes_kept": str(MINUTES_KEPT),
            "hours_kept": str(HOURS_KEPT),
            "history_kept": str(HISTORY_KEPT),
            "slack_part": str(SLACK[0]),
            "slack_most": str(SLACK[1]),
            "job_columns": rows.columns(),
            "job_types": rows.column_types(),
            "claimed_types": rows.claimed_types(),
            "chain_types": f"{rows.column_types('first_')}, {rows.column_types('current_')}",
            "no_chain_columns": f"{rows.no_columns()}, {rows.no_columns()}",
            "first_columns": rows.columns("first", "first_run"),
            "current_columns": rows.columns("current", "current_run"),
        }


@lru_cache(maxsize=1)
def _created() -> list[tuple[str, str]]:
    """Kind and name of all that the `.sql` files create."""
    files = [file for folder in ("migrations", "functions", "statements") for file in sql_files(f"{_PACKAGE}.{folder}")]
    return [found for _, text in files for found in _CREATED.findall(text)]


def _literal(text: str) -> str:
    """A string in SQL."""
    return "'" + text.replace("'", "''") + "'"


@lru_cache(maxsize=16)
def statements_for(installation: Installation) -> dict[str, PgText]:
    return load_pg_statements(f"{_PACKAGE}.statements", installation.words())


@lru_cache(maxsize=16)
def migrations_for(installation: Installation) -> tuple[Migration, ...]:
    return load_migrations(f"{_PACKAGE}.migrations", installation.words())


@lru_cache(maxsize=16)
def functions_for(installation: Installation) -> FunctionSet:
    sources = [(stem, strip_comments(text)) for stem, text in sql_files(f"{_PACKAGE}.functions")]

    def texts(suffix: str) -> list[str]:
        words = installation.words_with(suffix)
        scripts = (substitute(source, words, f"{stem}.sql") for stem, source in sources)
        return [text.strip() for script in scripts for text in re.split(r"(?<=\$body\$);\n", script) if text.strip()]

    digest = hashlib.sha256("\n".join(texts("")).encode()).hexdigest()[:8]
    names = [f"{installation.prefix}{what}_{digest}" for kind, what in _created() if kind == "FUNCTION"]
    return FunctionSet(digest, names, texts(f"_{digest}"))
