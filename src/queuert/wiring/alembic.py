"""The library's tables in the user's own Alembic revisions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from sqlalchemy.engine.mock import MockConnection
from typing_extensions import Unpack

from queuert.errors import InvalidArgument
from queuert.ports.provider import run
from queuert.wiring.options import TableOptions
from queuert.wiring.schema import statements_to_drop
from queuert.wiring.sqlalchemy import Target

_OFFLINE = (
    "alembic runs offline (--sql), but queuert's migrations must read from the database which of them are already "
    "applied: run the revision online"
)


def upgrade(connection: Connection, **tables: Unpack[TableOptions]) -> list[int]:
    """Create or update queuert's tables and functions in an Alembic revision.

    Call `upgrade(op.get_bind())`, in a new revision for each new version of queuert. Make clients
    with `migrate=False` then. Returns the schema versions that were applied.

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
    """Drop queuert's tables, with all jobs in them, and its functions, in an Alembic revision.

    Args:
        connection: What `op.get_bind()` returns. Its transaction is used.
        schema: PostgreSQL: the client's `schema` (default: "public").
        table_prefix: The client's `table_prefix` (default: "queuert_").
    """
    target = _target(connection, tables)
    for statement in statements_to_drop(target.schema if target.is_postgres else None, target.prefix):
        connection.exec_driver_sql(statement)


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
