"""Our tables and functions as SQL text, for tools that run migrations of their own."""

from __future__ import annotations

from queuert.adapters.postgres import installation as postgres
from queuert.adapters.sqlite.operations import base as sqlite
from queuert.sql.migrate import create_script, drop_script


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
