"""What differs from dialect to dialect: how a statement of ours reaches the connection that
SQLAlchemy has."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection as Pooled

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.driver import Status, ended_badly, require_transaction


class Dialect(ABC):
    """Methods are called where SQLAlchemy may do I/O: with async drivers, inside of `run_sync`."""

    options: Mapping[str, Any] = {}
    """Execution options for transactions of our own."""

    @abstractmethod
    def run(self, pooled: Pooled, command: Any) -> Any:
        """Run a command, in a transaction of ours or alone."""

    @abstractmethod
    def run_joined(self, pooled: Pooled, command: Any, *, stranger: bool) -> Any:
        """Run a command in the caller's transaction. `stranger`: it is another engine's."""

    @abstractmethod
    def abandon(self, driver_connection: Any) -> bool:
        """End the transaction by force, from any thread. Not where SQLAlchemy may do I/O. False:
        not possible."""

    @abstractmethod
    def check_before_commit(self, pooled: Pooled) -> None:
        """Raise `TransactionMisused` if a statement has failed and its error was swallowed."""

    @abstractmethod
    def translated(self, error: DBAPIError, *, inside: bool) -> BaseException:
        """The library's error for one of SQLAlchemy's. Any other error, if there is none."""

    def is_lost(self, pooled: Pooled) -> bool:  # noqa: ARG002
        """Whether the connection is gone. SQLAlchemy cannot tell: our statements go around it."""
        return False

    # SQLAlchemy takes a transaction for begun before its first statement. Where the database begins
    # one with any statement, SAVEPOINT included, that makes no difference.

    def begin(self, pooled: Pooled) -> None:  # noqa: B027
        """SQLAlchemy has begun a transaction of ours: begin it in the database."""

    def begin_joined(self, pooled: Pooled) -> None:  # noqa: B027
        """The caller's transaction is about to get a savepoint: begin it in the database."""

    def check_nested(self, pooled: Pooled) -> None:  # noqa: B027
        """The caller is in a savepoint: `TransactionMisused` if no transaction may be open."""

    def close(self) -> None:  # noqa: B027
        """Close what it has opened itself."""


class PostgresDialect(Dialect):
    options: Mapping[str, Any] = {"isolation_level": "READ COMMITTED"}

    @abstractmethod
    def status(self, pooled: Pooled) -> Status: ...

    def run_joined(self, pooled: Pooled, command: PgStatement, *, stranger: bool) -> Any:  # noqa: ARG002
        require_transaction(self.status(pooled))
        return self.run(pooled, command)

    def check_before_commit(self, pooled: Pooled) -> None:
        status = self.status(pooled)
        if status not in (Status.OPEN, Status.IDLE, Status.IMPLICIT):  # when idle, nothing was sent
            raise ended_badly(status)

    def is_lost(self, pooled: Pooled) -> bool:
        return self.status(pooled) in (Status.CLOSED, Status.LOST)
