"""asyncpg.

Statements go through the cursor that SQLAlchemy puts over it, which begins the transaction with the
first of them.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection as Pooled

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.asyncpg import DriverError, Rows, status_of, translated
from queuert.adapters.postgres.drivers.asyncpg_pools import check_encoding
from queuert.adapters.postgres.drivers.driver import Status, ended_badly
from queuert.adapters.postgres.drivers.errors import IN_FAILED_TRANSACTION, reraise, sqlstate
from queuert.adapters.sqlalchemy.dialect import PostgresDialect
from queuert.errors import TransactionMisused

_PROBE = PgStatement("SELECT 1", writes=False)


class AsyncpgDialect(PostgresDialect):
    _encoding_checked = False

    def status(self, pooled: Pooled) -> Status:
        connection: Any = pooled.driver_connection
        adapted: Any = pooled.dbapi_connection
        status = status_of(connection)
        return Status.IMPLICIT if status is Status.IDLE and not adapted.autocommit else status

    def run(self, pooled: Pooled, command: PgStatement) -> Rows:
        if not self._encoding_checked:
            driver: Any = pooled.driver_connection
            check_encoding(driver)
            self._encoding_checked = True
        cursor: Any = pooled.cursor()
        try:
            cursor.execute(command.text, command.values)
            return [tuple(row) for row in cursor.fetchall()]
        except Exception as error:
            cause = _beneath(error)
            if isinstance(cause, DriverError):
                raise reraise(translated(cause, inside=True)) from cause
            raise
        finally:
            cursor.close()

    def abandon(self, driver_connection: Any) -> bool:
        driver_connection.terminate()
        return True

    def check_before_commit(self, pooled: Pooled) -> None:
        """asyncpg does not show whether a statement has failed.

        So we send one that cannot fail by itself.
        """
        super().check_before_commit(pooled)
        if self.status(pooled) is Status.OPEN:
            try:
                self.run(pooled, _PROBE)
            except TransactionMisused as misuse:
                if sqlstate(misuse) == IN_FAILED_TRANSACTION:
                    raise ended_badly(Status.FAILED) from misuse
                raise

    def translated(self, error: DBAPIError, *, inside: bool) -> BaseException:
        cause = _beneath(error.orig)
        return translated(cause, inside=inside) if isinstance(cause, DriverError) else error


def _beneath(error: BaseException | None) -> BaseException | None:
    """SQLAlchemy wraps asyncpg's errors as those of a DBAPI."""
    return error if error is None or error.__cause__ is None else error.__cause__
