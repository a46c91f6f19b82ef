"""Our tables in the revisions of the user's own migrations."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, text
from sqlalchemy.engine.mock import MockConnection
from typing_extensions import Unpack

from queuert.adapters.postgres.operations.store import Installation
from queuert.adapters.postgres.operations.store import migrations_for as postgres_migrations
from queuert.adapters.sqlite.store import migrations_for as sqlite_migrations
from queuert.errors import InvalidArgument
from queuert.ports.provider import run
from queuert.sql.migrate import undone
from queuert.wiring.options import ClientOptions
from queuert.wiring.sqlalchemy import Target

_OFFLINE = (
    "there is no connection: alembic runs offline (--sql), and our migrations must see which of them the database has "
    "already. Run the revision online"
)


def upgrade(connection: Connection, **tables: Unpack[ClientOptions]) -> list[int]:
    """Bring our tables up to date in the transaction of a migration: `upgrade(op.get_bind())` in a revision.

    `schema` and `table_prefix` are the client's, if it has any. Returns the versions that were applied. Clients are
    then made with `migrate=False`.
    """
    target = _target(connection, tables)
    provider = target.sync_provider(connection.engine)
    try:
        with provider.as_own(connection):
            return run(provider, connection, target.operations().migrate())
    finally:
        provider.close()


def downgrade(connection: Connection, **tables: Unpack[ClientOptions]) -> None:
    """Drop our tables, with all jobs in them: the other half of a revision with `upgrade`."""
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


def _target(connection: object, tables: ClientOptions) -> Target:
    if isinstance(connection, MockConnection):
        raise InvalidArgument(_OFFLINE)
    if not isinstance(connection, Connection):
        raise InvalidArgument(f"expected what op.get_bind() returns, a Connection, got {type(connection).__name__}")
    unknown = sorted(tables.keys() - {"schema", "table_prefix"})
    if unknown:
        raise InvalidArgument(f"tables are found by schema and table_prefix; {', '.join(unknown)} says nothing here")
    return Target(connection.engine, {**tables, "notify": None})
