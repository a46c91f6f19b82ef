"""Our tables in the revisions of the user's own migrations."""

from __future__ import annotations

from sqlalchemy import Connection
from sqlalchemy.engine.mock import MockConnection
from typing_extensions import Unpack

from queuert.errors import InvalidArgument
from queuert.ports.provider import run
from queuert.wiring.options import ClientOptions
from queuert.wiring.schema import statements_to_drop
from queuert.wiring.sqlalchemy import Target

_OFFLINE = (
    "there is no connection: alembic runs offline (--sql), but our migrations must read which versions the database "
    "has. Run the revision online"
)


def upgrade(connection: Connection, **tables: Unpack[ClientOptions]) -> list[int]:
    """Bring our tables and functions up to date in the transaction of a migration: `upgrade(op.get_bind())`.

    Add a revision that calls it for each new version of queuert. `schema` and `table_prefix` are the client's, if it
    has any. Returns the versions of the tables that were applied. Clients are then made with `migrate=False`.
    """
    target = _target(connection, tables)
    provider = target.sync_provider(connection.engine)
    try:
        with provider.as_own(connection):
            return run(provider, connection, target.operations().migrate())
    finally:
        provider.close()


def downgrade(connection: Connection, **tables: Unpack[ClientOptions]) -> None:
    """Drop our tables, with all jobs in them, and our functions: the other half of a revision with `upgrade`."""
    target = _target(connection, tables)
    for statement in statements_to_drop(target.schema if target.is_postgres else None, target.prefix):
        connection.exec_driver_sql(statement)


def _target(connection: object, tables: ClientOptions) -> Target:
    if isinstance(connection, MockConnection):
        raise InvalidArgument(_OFFLINE)
    if not isinstance(connection, Connection):
        raise InvalidArgument(f"expected what op.get_bind() returns, a Connection, got {type(connection).__name__}")
    unknown = sorted(tables.keys() - {"schema", "table_prefix"})
    if unknown:
        raise InvalidArgument(f"only schema and table_prefix can be given here, got {', '.join(unknown)}")
    return Target(connection.engine, {**tables, "notify": None})
