"""Migrations: numbered scripts, each in a transaction of its own, one process at a time."""

from __future__ import annotations

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.operations.rows import Row
from queuert.adapters.postgres.operations.store import Migration, Store, migrations_for
from queuert.errors import SchemaTooNew
from queuert.ports.program import Pause, Program, atomically

LOOK_AGAIN_AFTER = 0.05


def migrate(store: Store) -> Program[list[int]]:
    migrations = migrations_for(store.installation)
    known = migrations[-1].version
    current = yield from _current(store, known)
    applied: list[int] = []
    for migration in migrations:
        while migration.version > current:
            before = current
            current = yield from atomically(_apply(store, migration, known))
            if current == before:
                # Another process is at it. Nothing is held while we wait for it.
                yield Pause(LOOK_AGAIN_AFTER)
            elif current == -migration.version:
                current = migration.version
                applied.append(current)
    return applied


def _apply(store: Store, migration: Migration, known: int) -> Program[int]:
    """The version that the database has now; negative if this call has brought it there."""
    locked: list[Row] = yield store("migrate.try_lock")
    current = yield from _current(store, known)
    if not locked[0][0] or current >= migration.version:
        return current
    if current == 0:
        yield from _prepare(store)
    for statement in migration.statements:
        yield PgStatement(statement)
    yield store("migrate.record", version=migration.version)
    return -migration.version


def _prepare(store: Store) -> Program[None]:
    """A role that may not create schemas can use one that is there."""
    found: list[Row] = yield store("migrate.schema_exists", schema=store.installation.schema)
    if not found:
        yield store("migrate.create_schema")
    yield store("migrate.create")


def _current(store: Store, known: int) -> Program[int]:
    """The version that the database has, 0 before the first migration."""
    installation = store.installation
    found: list[Row] = yield store(
        "migrate.exists", schema=installation.schema, table=f"{installation.prefix}schema_version"
    )
    if not found:
        return 0
    rows: list[Row] = yield store("migrate.current")
    current = int(rows[0][0])
    if current > known:
        raise SchemaTooNew(current, known)
    return current
