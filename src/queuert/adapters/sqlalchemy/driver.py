"""What differs from driver to driver: how a statement of ours reaches the connection that SQLAlchemy has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import PoolProxiedConnection as Pooled


class Driver(Protocol):
    """Everything is called where SQLAlchemy may do I/O: for async drivers, inside of `run_sync`."""

    options: Mapping[str, Any]
    """Execution options for transactions of our own."""

    def begin(self, pooled: Pooled) -> None:
        """SQLAlchemy has begun a transaction of ours: see to it that the driver has."""
        ...

    def run(self, pooled: Pooled, command: Any) -> Any:
        """Carry out a command, in a transaction of ours or where each statement stands alone."""
        ...

    def run_joined(self, pooled: Pooled, command: Any, *, stranger: bool) -> Any:
        """Carry out a command in the caller's transaction. `stranger`: the connection is of an engine not ours."""
        ...

    def begin_joined(self, pooled: Pooled) -> None:
        """The caller's transaction is about to get a savepoint: see to it that the driver has begun it."""
        ...

    def check_nested(self, pooled: Pooled) -> None:
        """The caller is in a savepoint: `TransactionMisused` if that may be no part of a transaction."""
        ...

    def is_lost(self, pooled: Pooled) -> bool:
        """Whether the connection is gone, which SQLAlchemy does not see in statements that pass it by."""
        ...

    def check_before_commit(self, pooled: Pooled) -> None:
        """`TransactionMisused` if a statement has failed and its error was swallowed."""
        ...

    def translated(self, error: DBAPIError, *, inside: bool) -> BaseException:
        """What to raise for an error that SQLAlchemy has met, in our words where we have some."""
        ...

    def close(self) -> None: ...
