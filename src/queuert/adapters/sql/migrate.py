"""Migrations: numbered `.sql` files, each applied once, in a transaction of its own.

A line `-- commit` in a file divides it into parts, each in a transaction of its own. So no
transaction has to lock two tables that others use. If the process dies between two parts, the next
one begins with the first part again: all but the last must change nothing when they are repeated.

The applied versions are in a table. A process first looks without any lock: usually there is
nothing to do. Otherwise it applies each missing version under a lock, after looking again. So
processes that start together do not disturb each other, and a process that is killed never leaves a
version half applied.

Each version also records the oldest version whose library still works with the tables. Only a
library below that is refused: during a rolling deploy, older processes can restart.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from queuert.adapters.sql.statement import Statement, sql_files, strip_comments, substitute
from queuert.errors import SchemaTooNew
from queuert.ports.program import Pause, Program, atomically

T = TypeVar("T")

LOOK_AGAIN_AFTER = 0.05

_OLDEST = re.compile(r"^-- oldest: (\d+)$", re.MULTILINE)
_CREATED = re.compile(r"^CREATE (TABLE|VIEW|SEQUENCE) (?:IF NOT EXISTS )?((?:\"[^\"]+\"|[^\s(\"])+)")

Texts = Mapping[str, Callable[..., Any]]
"""Statements by name; called with their parameters, they can be yielded."""


class Migration(msgspec.Struct, frozen=True):
    """One version of the tables: the statements that lead to it from the version before.

    `oldest` is the oldest version whose library works with these tables.
    """

    version: int
    oldest: int
    parts: tuple[tuple[str, ...], ...]

    @property
    def statements(self) -> list[str]:
        """Those of all parts."""
        return [statement for part in self.parts for statement in part]


class MigrationPlan(msgspec.Struct, frozen=True):
    """What `migrate` would do."""

    version: int
    """The version of the tables, 0 if there are none."""
    known: int
    """The version that this library needs."""
    missing: list[int]
    """The versions that would be applied."""
    functions: bool = False
    """Whether functions would be installed, too."""


def load_migrations(package: str, replacements: Mapping[str, str]) -> tuple[Migration, ...]:
    """The migrations of a package, files named `0001_what.sql` and so on, in their order.

    A statement ends with a semicolon at the end of a line, outside of `$body$`. A line
    `-- oldest: 1` is in each file.
    """
    found: list[Migration] = []
    for stem, source in sql_files(package):
        oldest = _OLDEST.search(source)
        if oldest is None:
            raise LookupError(f"{stem}.sql has no line '-- oldest: …'")
        script = substitute(source, replacements, f"{stem}.sql")
        parts = tuple(tuple(_statements(strip_comments(part))) for part in script.split("\n-- commit\n"))
        found.append(Migration(int(stem.partition("_")[0]), int(oldest[1]), parts))
    return tuple(found)


def _statements(script: str) -> Iterator[str]:
    statement = ""
    for part in script.split(";\n"):
        statement += part
        if statement.count("$body$") % 2:
            statement += ";\n"
        elif statement.strip():
            yield statement.strip()
            statement = ""


def created(statements: Iterable[str]) -> list[tuple[str, str]]:
    """Kind and name of the tables, views and sequences that these statements create."""
    return [(found[1], found[2]) for statement in statements if (found := _CREATED.match(statement))]


def create_script(migrations: Iterable[Migration], texts: Mapping[str, Any]) -> list[str]:
    """The statements that make all tables in an empty database."""
    return [*(text for migration in migrations for text in migration.statements), texts["migrate.create"].text]


def drop_script(migrations: Iterable[Migration], texts: Mapping[str, Any], *, cascade: bool) -> list[str]:
    """The statements that drop all tables, last first."""
    drops = [f"DROP {kind} IF EXISTS {name}" for kind, name in created(create_script(migrations, texts))]
    return [texts["migrate.drop"].text, *(f"{drop} CASCADE" if cascade else drop for drop in reversed(drops))]


def plan(migrations: Sequence[Migration], texts: Texts) -> Program[MigrationPlan]:
    """What is missing. Nothing is changed, and nothing is locked."""
    known = migrations[-1].version
    version = yield from current_version(texts, known)
    missing = [migration.version for migration in migrations if migration.version > version]
    return MigrationPlan(version, known, missing)


def update_script(migrations: Iterable[Migration], texts: Mapping[str, Any], record: str) -> list[str]:
    """The statements that apply these versions and record them. `record` is the statement for that,
    with `{version}` and `{oldest}`.
    """
    script: list[str] = []
    for migration in migrations:
        recorded = record.format(version=migration.version, oldest=migration.oldest)
        script += [*migration.statements, texts["migrate.create"].text, recorded]
    return script


def migrate(
    migrations: Sequence[Migration], texts: Texts, command: Callable[[str], Any] = Statement, **recorded: Any
) -> Program[list[int]]:
    """Apply what is missing. Returns the versions that this call applied.

    `texts` has the statements on the version table: `migrate.exists`, `current`, `create` and
    `record`, which takes what is `recorded` besides; and `try_lock` and `adopt`, where the database
    has them. `command` makes a command of a migration's statement.
    """
    known = migrations[-1].version
    current = yield from current_version(texts, known)
    applied: list[int] = []
    for migration in migrations:
        if migration.version > current:
            for part in migration.parts:
                apply = partial(_apply, migration, part, known, texts, command, recorded)
                applied += yield from one_at_a_time(texts, apply)
    return applied


def _apply(
    migration: Migration,
    part: Sequence[str],
    known: int,
    texts: Texts,
    command: Callable[[str], Any],
    recorded: Mapping[str, Any],
) -> Program[list[int]]:
    """The version, if it is complete now. Nothing, if another process has applied it meanwhile."""
    if (yield from current_version(texts, known)) >= migration.version:
        return []
    for statement in part:
        yield command(statement)
    if part is not migration.parts[-1]:
        return []
    yield texts["migrate.create"]()
    yield texts["migrate.record"](version=migration.version, oldest=migration.oldest, **recorded)
    if "migrate.adopt" in texts:
        names = [name for _, name in created(migration.statements)]
        yield from carry_out(texts["migrate.adopt"](names=names), command)
    return [migration.version]


def carry_out(query: Any, command: Callable[[str], Any]) -> Program[None]:
    """Run the commands that a query answers with."""
    for (text,) in (yield query):
        yield command(text)


def one_at_a_time(texts: Texts, make: Callable[[], Program[T]]) -> Program[T]:
    """Run a program in a transaction, under the lock of migrations.

    While another process has the lock, this one waits without a transaction.
    """
    while (done := (yield from atomically(_locked(texts, make)))) is None:
        yield Pause(LOOK_AGAIN_AFTER)
    return done


def _locked(texts: Texts, make: Callable[[], Program[T]]) -> Program[T | None]:
    if "migrate.try_lock" in texts:
        ((locked,),) = yield texts["migrate.try_lock"]()
        if not locked:
            return None
    return (yield from make())


def current_version(texts: Texts, known: int) -> Program[int]:
    """The version of the tables, 0 before the first migration.

    `SchemaTooNew` if this library is too old for it.
    """
    ((present, before),) = yield texts["migrate.exists"]()
    if not (present or before):
        return 0
    ((version, oldest),) = yield texts["migrate.current" if present else "migrate.current_before"]()
    if known < oldest:
        raise SchemaTooNew(version, known, oldest)
    return int(version)
