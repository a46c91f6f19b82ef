"""The library's tables in the user's own Alembic revisions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine.mock import MockConnection
from typing_extensions import Unpack

from queuert.adapters.postgres.operations.store import Installation
from queuert.adapters.postgres.operations.store import migrations_for as postgres_migrations
from queuert.adapters.sqlite.operations.base import migrations_for as sqlite_migrations
from queuert.errors import InvalidArgument
from queuert.ports.provider import run
from queuert.sql.migrate import undone
from queuert.wiring.options import TableOptions
from queuert.wiring.sqlalchemy import Target

_OFFLINE = (
    "alembic runs offline (--sql), but queuert's migrations must read from the database which of them are already "
    "applied: run the revision online"
)


def upgrade(connection: Connection, **tables: Unpack[TableOptions]) -> list[int]:
    """Create or update queuert's tables in an Alembic revision: `upgrade(op.get_bind())`.

    Make clients with `migrate=False` then. Returns the schema versions that were applied.

    Args:
        connection: What `op.get_bind()` returns. Its transaction is used.
        schema: PostgreSQL: the client's `schema` (default: "public").
        table_prefix: The client's `table_prefix` (default: "queuert_").
    """
    target = _target(connection, tables)
    provider = target.sync_provider(connection.engine)
    try:
        with provider.as_own(connection):
            return run(provider, connection, target.operations().migrate())
    finally:
        provider.close()


def downgrade(connection: Connection, **tables: Unpack[TableOptions]) -> None:
    """Drop queuert's tables, with all jobs in them, in an Alembic revision.

    Args:
        connection: What `op.get_bind()` returns. Its transaction is used.
        schema: PostgreSQL: the client's `schema` (default: "public").
        table_prefix: The client's `table_prefix` (default: "queuert_").
    """
    target = _target(connection, tables)
    if target.is_postgres:
        installation = Installation(target.schema, target.prefix)
        scripts: Any = postgres_migrations(installation)
        version = installation.name("schema_version")
    else:
        scripts = sqlite_migrations(target.prefix)
        version = f"{target.prefix}migration"
    statements = [f"CREATE TABLE {version}", *(each for script in scripts for each in script.statements)]
    for statement in undone(statements, cascade=target.is_postgres):
        connection.execute(text(statement))


def _target(connection: object, tables: TableOptions) -> Target:
    if isinstance(connection, MockConnection):
        raise InvalidArgument(_OFFLINE)
    if not isinstance(connection, Connection):
        raise InvalidArgument(f"pass the Connection that op.get_bind() returns, got {type(connection).__name__}")
    unknown = sorted(tables.keys() - {"schema", "table_prefix"})
    if unknown:
        raise InvalidArgument(f"only schema and table_prefix are options here, got {', '.join(unknown)}")
    options: Any = {**tables, "notify": None}
    return Target(connection.engine, options)
