"""psycopg 3, sync and async."""

from __future__ import annotations

from typing import Any

import psycopg
from sqlalchemy.engine import AdaptedConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection as Pooled

from queuert.adapters.finishing import cancel_and_finish
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.driver import Status
from queuert.adapters.postgres.drivers.psycopg_connection import Rows, abandon, run, status_of, translated
from queuert.adapters.sqlalchemy.dialect import PostgresDialect
from queuert.base.blocking import run_blocking


class PsycopgDialect(PostgresDialect):
    def status(self, pooled: Pooled) -> Status:
        connection: Any = pooled.driver_connection
        return status_of(connection)

    def run(self, pooled: Pooled, command: PgStatement) -> Rows:
        # Whether to prepare is a setting of the user's engine: there may be a PgBouncer on the way.
        dbapi: Any = pooled.dbapi_connection
        if isinstance(dbapi, AdaptedConnection):
            return dbapi.run_async(
                lambda driver: cancel_and_finish(run(driver, command, prepare=None), lambda: abandon(driver))
            )
        return run_blocking(run(dbapi, command, prepare=None))

    def abandon(self, driver_connection: Any) -> bool:
        return abandon(driver_connection)

    def translated(self, error: DBAPIError, *, inside: bool) -> BaseException:
        return translated(error.orig, inside=inside) if isinstance(error.orig, psycopg.Error) else error
