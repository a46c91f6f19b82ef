"""psycopg 3, sync and async."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import psycopg
from sqlalchemy.engine import AdaptedConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection as Pooled

from queuert.adapters.finishing import cancel_and_finish
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.psycopg_common import (
    IDLE,
    Rows,
    check_before_commit,
    require_transaction,
    run,
    run_async,
    status_of,
    translated,
)
from queuert.adapters.sqlalchemy.driver import Driver


class PsycopgDriver:
    options: Mapping[str, Any] = {"isolation_level": "READ COMMITTED"}

    def begin(self, pooled: Pooled) -> None:
        """psycopg begins with the first statement."""

    def run(self, pooled: Pooled, command: PgStatement) -> Rows:
        # Whether to prepare is for the user's engine to say: there may be a PgBouncer on the way.
        dbapi: object = pooled.dbapi_connection
        if isinstance(dbapi, AdaptedConnection):
            return dbapi.run_async(lambda driver: cancel_and_finish(run_async(driver, command, prepare=None)))
        connection: Any = dbapi
        return run(connection, command, prepare=None)

    def run_joined(self, pooled: Pooled, command: PgStatement, *, stranger: bool) -> Rows:  # noqa: ARG002
        connection: Any = pooled.driver_connection
        require_transaction(connection)
        return self.run(pooled, command)

    def begin_joined(self, pooled: Pooled) -> None:
        """SAVEPOINT is a statement, and begins the transaction."""

    def check_nested(self, pooled: Pooled) -> None:
        """PostgreSQL has no savepoints outside of transactions."""

    def is_lost(self, pooled: Pooled) -> bool:
        connection: Any = pooled.driver_connection
        return bool(connection.closed)

    def check_before_commit(self, pooled: Pooled) -> None:
        connection: Any = pooled.driver_connection
        if status_of(connection) != IDLE:  # else nothing was said in the transaction
            check_before_commit(connection)

    def translated(self, error: DBAPIError, *, inside: bool) -> BaseException:
        return translated(error.orig, inside=inside) if isinstance(error.orig, psycopg.Error) else error

    def close(self) -> None:
        """It holds nothing."""


if TYPE_CHECKING:
    _: type[Driver] = PsycopgDriver
