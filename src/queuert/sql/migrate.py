"""Migrations: numbered `.sql` files, each applied once, in a transaction of its own.

The versions that were applied stand in a table. Whoever migrates first looks without any lock (the usual case: nothing
is to be done), then applies each missing version under the lock that writing takes, after looking again. So processes
that start together do not disturb each other, and one that was killed leaves whole versions behind, never half of one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from queuert.errors import SchemaTooNew
from queuert.ports.program import Program, atomically
from queuert.sql.statement import Statement, Text, sql_files, strip_comments, substitute

_CREATED = re.compile(r"^CREATE (TABLE|SEQUENCE|FUNCTION) (?:IF NOT EXISTS )?([^\s(]+)", re.MULTILINE)


class Migration(msgspec.Struct, frozen=True):
    """One version of the schema: what brings the version before it here."""

    version: int
    name: str
    statements: tuple[str, ...]


def load_migrations(package: str, replacements: Mapping[str, str]) -> list[Migration]:
    """The migrations of a package, files named `0001_what.sql` and so on, in their order.

    A statement ends with a semicolon at the end of a line.
    """
    found: list[Migration] = []
    for stem, source in sql_files(package):
        number, _, name = stem.partition("_")
        script = strip_comments(substitute(source, replacements, f"{stem}.sql"))
        statements = tuple(part.strip() for part in script.split(";\n") if part.strip())
        found.append(Migration(int(number), name, statements))
    return found


def undone(statements: Iterable[str], *, cascade: bool) -> list[str]:
    """The statements that drop what these have created, last first."""
    created = dict.fromkeys(found for statement in statements for found in _CREATED.findall(statement))
    return [f"DROP {kind} IF EXISTS {name}{' CASCADE' if cascade else ''}" for kind, name in reversed(created)]


def migrate(migrations: Sequence[Migration], texts: Mapping[str, Text], **recorded: Any) -> Program[list[int]]:
    """Apply what is missing; answers the versions that this call applied.

    `texts` has the statements on the version table: `migrate.exists`, `migrate.create`, `migrate.current` and
    `migrate.record`, which takes the version and what else is `recorded`.
    """
    known = migrations[-1].version
    current = yield from _current(texts, known)
    applied: list[int] = []
    for migration in migrations:
        if migration.version > current:
            applied += yield from atomically(_apply(migration, known, texts, recorded))
    return applied


def _apply(
    migration: Migration, known: int, texts: Mapping[str, Text], recorded: Mapping[str, Any]
) -> Program[list[int]]:
    """The version, or nothing if somebody else has applied it in the meantime."""
    if (yield from _current(texts, known)) >= migration.version:
        return []
    yield texts["migrate.create"]()
    for statement in migration.statements:
        yield Statement(statement, {}, writes=True)
    yield texts["migrate.record"](version=migration.version, **recorded)
    return [migration.version]


def _current(texts: Mapping[str, Text], known: int) -> Program[int]:
    """The version that the database has, 0 before the first migration."""
    if not (yield texts["migrate.exists"]()):
        return 0
    rows: Sequence[Sequence[Any]] = yield texts["migrate.current"]()
    current = int(rows[0][0])
    if current > known:
        raise SchemaTooNew(current, known)
    return current
