"""Django's connections: what we use of them, and the errors that explain why one cannot be used.

Django has one for each thread and alias, `connections[alias]`; `django.db.connection` is a proxy
for the one of the default alias. Nothing here does I/O.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, Protocol, cast

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from queuert.errors import TransactionMisused, TransactionRequired


class DjangoConnection(Protocol):
    """The type of `connections["default"]`, and of `tx.connection` in plain `def` handlers."""

    alias: str
    """The alias of the database in DATABASES."""
    vendor: str
    """"postgresql" or "sqlite"."""
    in_atomic_block: bool
    """Whether an atomic block is open."""

    def cursor(self) -> Any:
        """A cursor of Django's, to run SQL with."""
        ...


class Wrapper(DjangoConnection, Protocol):
    """The members that only this package uses."""

    connection: Any
    """The driver's own connection."""
    settings_dict: dict[str, Any]
    autocommit: bool
    needs_rollback: bool
    errors_occurred: bool
    closed_in_transaction: bool
    wrap_database_errors: Any
    atomic_blocks: list[Any]
    savepoint_ids: list[Any]
    run_on_commit: list[tuple[Any, ...]]

    def ensure_connection(self) -> None: ...

    def close(self) -> None: ...

    def close_if_health_check_failed(self) -> None: ...

    def on_commit(self, func: Any, robust: bool = False) -> None: ...

    def get_connection_params(self) -> dict[str, Any]: ...


def own(alias: str) -> Wrapper:
    """This thread's connection."""
    refuse_event_loop()
    return cast(Wrapper, connections[alias])


def resolve(connection: object, alias: str) -> Wrapper:
    """The connection that was given, if it is this thread's to the database that holds the jobs."""
    refuse_event_loop()
    given: Any = connection
    if isinstance(given, ConnectionProxy):
        given = connections[given.alias]
    if not isinstance(given, BaseDatabaseWrapper):
        raise TransactionMisused(
            f"expected one of Django's connections, as in connections[{alias!r}], "
            f"got {type(given).__module__}.{type(given).__qualname__}"
        )
    wrapper: Any = given
    if wrapper.alias != alias:
        raise TransactionMisused(
            f"this connection is to the database {wrapper.alias!r}, but the jobs of this client live in {alias!r}: "
            "a transaction cannot span two databases"
        )
    if wrapper is not connections[alias]:
        raise TransactionMisused(
            f"this connection belongs to another thread: get connections[{alias!r}] in each thread"
        )
    return cast(Wrapper, wrapper)


def require_atomic(wrapper: Wrapper, operation: str | None = None) -> None:
    """Raise unless an atomic block is open and usable.

    `operation` is the client's operation, for the message.
    """
    if not wrapper.in_atomic_block or (operation is not None and Strict.on and not is_nested(wrapper)):
        reason = (
            f"no transaction.atomic() block is open on the database {wrapper.alias!r}: put this call and your own "
            "writes inside one, or set ATOMIC_REQUESTS"
        )
        # Before the first query there is no connection yet, and Django's attribute says False.
        if wrapper.in_atomic_block:
            reason = (
                "atomic_required() counts only transaction.atomic() blocks of your own code, and not the one of the "
                f"test: none is open on the database {wrapper.alias!r}"
            )
        elif not (wrapper.settings_dict["AUTOCOMMIT"] if wrapper.connection is None else wrapper.autocommit):
            reason = f"autocommit is off for the database {wrapper.alias!r}: turn it on, and use transaction.atomic()"
        raise TransactionMisused(reason) if operation is None else TransactionRequired(operation, reason=reason)
    if wrapper.closed_in_transaction or wrapper.connection is None:
        raise TransactionMisused("this connection was closed, or lost, inside its atomic block, which is rolled back")
    if wrapper.needs_rollback:
        raise TransactionMisused(
            "an error has broken the atomic block, which will be rolled back: nothing more can be done in it. "
            "Put what may fail into a transaction.atomic() of its own, and let its error leave that block"
        )


class Strict:
    """Whether the block that a TestCase opens around each test is not enough to start a chain in:
    outside of tests it is not there.
    """

    on = False


def is_nested(wrapper: Wrapper) -> bool:
    """Whether an atomic block of the user's is open.

    The block that a TestCase opens around each test does not count.
    """
    return wrapper.in_atomic_block and not (
        wrapper.atomic_blocks and getattr(wrapper.atomic_blocks[-1], "_from_testcase", False)
    )


def refuse_event_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if not os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        raise TransactionMisused(
            "Django's transactions cannot be used in async code: put the atomic block into a function, and call that "
            "with `await sync_to_async(function)(…)`"
        )
