"""Our tables and functions as SQL text, for tools that run migrations of their own."""

from __future__ import annotations

from queuert.adapters.postgres import installation as postgres
from queuert.adapters.sql.migrate import create_script, drop_script, update_script
from queuert.adapters.sqlite.operations import base as sqlite


def statements_to_create(schema: str | None, prefix: str) -> list[str]:
    """All statements that an empty database needs. `schema` is None for SQLite."""
    if schema is None:
        return create_script(sqlite.migrations_for(prefix), sqlite.statements_for(prefix))
    here = postgres.Installation(schema, prefix)
    tables = create_script(postgres.migrations_for(here), postgres.statements_for(here))
    return [*tables, *postgres.functions_for(here).statements]


def statements_to_drop(schema: str | None, prefix: str) -> list[str]:
    """All statements that remove what is ours from a database: tables, view, and the functions of
    every version.
    """
    if schema is None:
        return drop_script(sqlite.migrations_for(prefix), sqlite.statements_for(prefix), cascade=False)
    here = postgres.Installation(schema, prefix)
    return drop_script(postgres.migrations_for(here), postgres.statements_for(here), cascade=True)


def statements_to_update(schema: str | None, prefix: str, since: int) -> list[str]:
    """All statements that take a database from a schema version to this one, and record that.

    `since` is 0 for an empty database. `schema` is None for SQLite.
    """
    if schema is None:
        texts, migrations = sqlite.statements_for(prefix), sqlite.migrations_for(prefix)
        record = (
            f"INSERT INTO {prefix}version (version, oldest, applied_at) "
            "VALUES ({version}, {oldest}, unixepoch() * 1000000)"
        )
        return update_script((each for each in migrations if each.version > since), texts, record)
    here = postgres.Installation(schema, prefix)
    # Not by `format`: the names of schema and tables may contain braces.
    table = here.name("version").replace("{", "{{").replace("}", "}}")
    record = f"INSERT INTO {table} (version, oldest) VALUES ({{version}}, {{oldest}})"
    missing = (each for each in postgres.migrations_for(here) if each.version > since)
    tables = update_script(missing, postgres.statements_for(here), record)
    functions = postgres.functions_for(here)
    names = ", ".join(f"'{name}'" for name in functions.names)
    recorded = (
        f"INSERT INTO {here.name('function_set')} (digest, schema_version, functions) "
        f"SELECT '{functions.digest}', max(version), ARRAY[{names}] FROM {here.name('version')} "
        "ON CONFLICT (digest) DO UPDATE SET schema_version = excluded.schema_version"
    )
    return [*tables, *functions.statements, recorded]


def versions(schema: str | None, prefix: str) -> list[int]:
    """All schema versions that this library can apply, the one that it needs last."""
    if schema is None:
        return [each.version for each in sqlite.migrations_for(prefix)]
    return [each.version for each in postgres.migrations_for(postgres.Installation(schema, prefix))]
