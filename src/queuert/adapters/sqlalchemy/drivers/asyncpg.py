"""asyncpg.

Statements go through the cursor that SQLAlchemy puts over it: that begins the transaction, with the first of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection as Pooled

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.asyncpg_connection import Rows, is_closed, is_open, reraise
from queuert.adapters.postgres.drivers.asyncpg_sources import DriverError
from queuert.adapters.postgres.drivers.errors import FAILED, NOT_BEGUN, SWALLOWED
from queuert.adapters.sqlalchemy.driver import Driver
from queuert.errors import StorageUnavailable, TransactionMisused

_PROBE = PgStatement("SELECT 1", writes=False)


class AsyncpgDriver:
    options: Mapping[str, Any] = {"isolation_level": "READ COMMITTED"}

    def begin(self, pooled: Pooled) -> None:
        """SQLAlchemy begins with the first statement."""

    def run(self, pooled: Pooled, command: PgStatement) -> Rows:
        cursor: Any = pooled.cursor()
        try:
            cursor.execute(command.text, command.values)
            return [tuple(row) for row in cursor.fetchall()]
        except Exception as error:
            cause = _beneath(error)
            if isinstance(cause, DriverError):
                raise reraise(cause, inside=True) from cause
            raise
        finally:
            cursor.close()

    def run_joined(self, pooled: Pooled, command: PgStatement, *, stranger: bool) -> Rows:  # noqa: ARG002
        connection: Any = pooled.driver_connection
        if is_closed(connection):
            raise TransactionMisused("this connection is closed, or was lost")
        adapted: Any = pooled.dbapi_connection
        if adapted.autocommit and not is_open(connection):
            raise TransactionMisused(NOT_BEGUN)
        return self.run(pooled, command)

    def begin_joined(self, pooled: Pooled) -> None:
        """SAVEPOINT is a statement, and begins the transaction."""

    def check_nested(self, pooled: Pooled) -> None:
        """PostgreSQL has no savepoints outside of transactions."""

    def is_lost(self, pooled: Pooled) -> bool:
        connection: Any = pooled.driver_connection
        return is_closed(connection)

    def check_before_commit(self, pooled: Pooled) -> None:
        """asyncpg keeps to itself whether a statement has failed: one that cannot fail finds out."""
        connection: Any = pooled.driver_connection
        if is_closed(connection):
            raise StorageUnavailable(
                "the connection to PostgreSQL was lost inside the transaction, which is rolled back"
            )
        if not is_open(connection):
            return  # nothing was said in the transaction
        try:
            self.run(pooled, _PROBE)
        except TransactionMisused as misuse:
            raise TransactionMisused(SWALLOWED if str(misuse) == FAILED else str(misuse)) from misuse

    def translated(self, error: DBAPIError, *, inside: bool) -> BaseException:
        cause = None if error.orig is None else error.orig.__cause__
        if not isinstance(cause, DriverError):
            return error
        try:
            return reraise(cause, inside=inside)
        except DriverError:  # a conflict, for the transaction's owner to deal with
            return error

    def close(self) -> None:
        """It holds nothing."""


def _beneath(error: Exception) -> BaseException:
    """SQLAlchemy dresses asyncpg's errors as those of a DBAPI; what we know about is beneath."""
    return error if error.__cause__ is None else error.__cause__


if TYPE_CHECKING:
    _: type[Driver] = AsyncpgDriver
