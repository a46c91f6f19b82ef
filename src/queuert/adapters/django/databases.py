"""What differs between the databases: how our statements run on the driver's connection that Django
wraps.

Django's cursors are not used: they would rewrite placeholders, convert values and log every
statement. An error breaks Django's atomic block, as an error of its own cursor would.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol

from queuert.adapters.django.connection import Wrapper
from queuert.adapters.sql.statement import Statement
from queuert.errors import QueuertError, StorageError, TransactionMisused


class DatabaseKind(Protocol):
    """A database that both Django and queuert support."""

    def execute(self, wrapper: Wrapper, command: Any) -> Any:
        """Carry out a command on an open connection, inside of an atomic block."""
        ...

    def is_single(self, command: Any) -> bool:
        """Whether a command needs no transaction when it runs alone."""
        ...

    def check_before_commit(self, wrapper: Wrapper) -> None:
        """Raise, if a COMMIT would not commit."""
        ...

    def abandon(self, wrapper: Wrapper) -> bool:
        """End the transaction by force, from any thread. False: not possible."""
        ...

    def check_settings(self, wrapper: Wrapper) -> None:
        """Refuse settings under which transactions with jobs in them do not work."""
        ...


def kind_of(wrapper: Wrapper) -> DatabaseKind:
    if wrapper.vendor == "postgresql":
        return Postgres()
    if wrapper.vendor == "sqlite":
        return Sqlite()
    raise StorageError(f"the database {wrapper.alias!r} is {wrapper.vendor}: jobs can live in PostgreSQL or SQLite")


class Postgres:
    def execute(self, wrapper: Wrapper, command: Any) -> Any:
        import psycopg

        from queuert.adapters.postgres.drivers.driver import Status
        from queuert.adapters.postgres.drivers.psycopg_connection import (
            USE_UTF8,
            cursor_on,
            is_utf8,
            query,
            status_of,
            translated,
        )

        connection = wrapper.connection
        cursor = cursor_on(connection)
        try:
            if not is_utf8(connection):
                connection.execute(USE_UTF8)
            # Django's settings decide whether statements are prepared.
            cursor.execute(query(command.text), command.values or None, binary=True)
            return cursor.fetchall() if cursor.description is not None else []
        except psycopg.Error as error:
            wrapper.errors_occurred = True
            if wrapper.in_atomic_block and status_of(connection) is Status.FAILED:
                wrapper.needs_rollback = True
            found = translated(error, inside=wrapper.in_atomic_block)
            if isinstance(found, QueuertError):
                raise found from error
            with wrapper.wrap_database_errors:
                raise

    def is_single(self, command: Any) -> bool:  # noqa: ARG002
        return True

    def check_before_commit(self, wrapper: Wrapper) -> None:
        from queuert.adapters.postgres.drivers.driver import Status, ended_badly
        from queuert.adapters.postgres.drivers.psycopg_connection import status_of

        if wrapper.needs_rollback or status_of(wrapper.connection) is Status.FAILED:
            raise ended_badly(Status.FAILED)

    def abandon(self, wrapper: Wrapper) -> bool:
        from queuert.adapters.postgres.drivers.psycopg_connection import abandon

        return wrapper.connection is None or abandon(wrapper.connection)

    def check_settings(self, wrapper: Wrapper) -> None:
        problem = postgres_problem()
        if problem is not None:
            raise StorageError(f"the database {wrapper.alias!r}: {problem}")


class Sqlite:
    def execute(self, wrapper: Wrapper, command: Any) -> Any:
        from queuert.adapters.sqlite.connections import session

        try:
            return session.run(wrapper.connection, command, str(wrapper.settings_dict["NAME"]))
        except QueuertError:
            wrapper.errors_occurred = True
            raise

    def is_single(self, command: Any) -> bool:
        return isinstance(command, Statement)

    def check_before_commit(self, wrapper: Wrapper) -> None:
        from queuert.adapters.sqlite.connections import session

        session.require_open(wrapper.connection)
        if wrapper.needs_rollback:
            raise TransactionMisused(
                "an error broke the atomic block and was swallowed, so Django rolls it back: put what may fail into a "
                "transaction.atomic() of its own, and let its error leave that block"
            )

    def abandon(self, wrapper: Wrapper) -> bool:
        from queuert.adapters.sqlite.connections import abandoning

        return wrapper.connection is None or abandoning.abandon(wrapper.connection)

    def check_settings(self, wrapper: Wrapper) -> None:
        problem = sqlite_problem(wrapper.settings_dict)
        if problem is not None:
            raise StorageError(f"the database {wrapper.alias!r}: {problem}")


def postgres_problem() -> str | None:
    """Why Django's connections to PostgreSQL cannot be used; None if they can."""
    with suppress(ImportError):
        from django.db.backends.postgresql.psycopg_any import is_psycopg3

        if is_psycopg3:
            return None
    return "Django must use psycopg 3, pip install 'queuert[django,psycopg]'"


def sqlite_problem(settings_dict: dict[str, Any]) -> str | None:
    """Why transactions on this SQLite database cannot have jobs in them; None if they can."""
    mode = settings_dict.get("OPTIONS", {}).get("transaction_mode")
    if str(mode).upper() in ("IMMEDIATE", "EXCLUSIVE"):
        return None
    return (
        "SQLite transactions must take the write lock when they begin, or they fail whenever another connection "
        'writes: set "OPTIONS": {"transaction_mode": "IMMEDIATE"}'
    )
