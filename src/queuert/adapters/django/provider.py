"""The sync provider: Django's connection of this thread, and `transaction.atomic` for every
transaction.

A command that runs alone uses that connection too, inside the atomic block if one is open, like
everything in Django. Only writes are refused there: they would not be committed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, cast

from django.db import close_old_connections, connections, reset_queries, transaction
from django.db.utils import Error as DjangoDatabaseError

from queuert.adapters.django.connection import (
    DjangoConnection,
    Wrapper,
    is_nested,
    own,
    require_atomic,
    resolve,
)
from queuert.adapters.django.databases import DatabaseKind, kind_of
from queuert.adapters.django.watching import OnCommit, watch
from queuert.base.contexts import context
from queuert.errors import ClientClosed, StorageError, StorageUnavailable, TransactionMisused, TransactionNested
from queuert.ports.beginning import SyncBegun
from queuert.ports.provider import AfterCommitWork, Enlisting, SyncBlock, SyncProvider

W = TypeVar("W", bound=AfterCommitWork)


class DjangoProvider:
    """Transactions on `connections[alias]`.

    Settings are read at the first use, not before.
    """

    def __init__(self, alias: str = "default") -> None:
        self.alias = alias
        self._closed = False
        self._abandoned: set[Wrapper] = set()

    @cached_property
    def _kind(self) -> DatabaseKind:
        wrapper = own(self.alias)
        kind = kind_of(wrapper)
        kind.check_settings(wrapper)
        return kind

    def transaction(self, first: Any = None) -> SyncBlock[DjangoConnection]:
        return SyncBegun(self, self._transaction(), first)

    @context
    def _transaction(self) -> Iterator[DjangoConnection]:
        self._check_open()
        wrapper = own(self.alias)
        if is_nested(wrapper):
            raise TransactionNested(
                f"a transaction.atomic() block is open on the database {self.alias!r}: "
                "give the connection itself as the transaction, as in client.start(connection, …)"
            )
        kind = self._kind
        try:
            with self._atomic(wrapper, durable=True):
                yield wrapper
                _check_before_commit(kind, wrapper)
        finally:
            if wrapper in self._abandoned:
                self._abandoned.discard(wrapper)
                wrapper.close()

    @context
    def savepoint(self, connection: DjangoConnection) -> Iterator[None]:
        wrapper = self._usable(connection)
        with self._atomic(wrapper):
            yield
            _check_before_commit(self._kind, wrapper)

    def execute(self, connection: DjangoConnection | None, command: Any) -> Any:
        if connection is not None:
            return self._kind.execute(self._usable(connection), command)
        self._check_open()
        wrapper, kind = own(self.alias), self._kind
        if wrapper.in_atomic_block:
            if command.writes and is_nested(wrapper):
                raise TransactionNested(
                    f"a transaction.atomic() block is open on the database {self.alias!r}, and this would be "
                    "committed with it, not now: do it outside"
                )
            require_atomic(wrapper)
            return kind.execute(wrapper, command)
        if not kind.is_single(command):
            with self._atomic(wrapper):
                return kind.execute(wrapper, command)
        self._connect(wrapper)
        return kind.execute(wrapper, command)

    def check(self, connection: DjangoConnection) -> None:
        self._usable(connection)

    def in_transaction(self, connection: DjangoConnection) -> bool:
        return connection.in_atomic_block

    def abandon(self, connection: DjangoConnection) -> bool:
        wrapper = cast(Wrapper, connection)
        self._abandoned.add(wrapper)
        return self._kind.abandon(wrapper)

    def close(self) -> None:
        """Does nothing: Django opens and closes the connections."""
        self._closed = True

    def enlist(self, connection: DjangoConnection, operation: str, make: Callable[[], W]) -> W:
        """Uses `on_commit`.

        Django drops what was registered in a block that is rolled back. So only calls in the same
        blocks share work, and Django's own list shows whether they are.
        """
        self._check_open()
        wrapper = resolve(connection, self.alias)
        require_atomic(wrapper, operation)
        _ = self._kind
        blocks = set(wrapper.savepoint_ids)
        if wrapper.run_on_commit:
            registered, last = wrapper.run_on_commit[-1][:2]
            if isinstance(last, OnCommit) and last.provider is self and registered == blocks and not last.done:
                shared: W = last.work
                return shared
        work = make()
        waiting = OnCommit(self, work)
        wrapper.on_commit(waiting, robust=True)
        watch(wrapper).add(waiting)
        return work

    @context
    def in_thread(self) -> Iterator[None]:
        """Wraps a handler in its thread, which ends after it: Django's connections must be closed
        before their thread ends.
        """
        reset_queries()
        close_old_connections()
        try:
            yield
        finally:
            connections.close_all()

    def _usable(self, connection: DjangoConnection) -> Wrapper:
        self._check_open()
        wrapper = resolve(connection, self.alias)
        require_atomic(wrapper)
        _ = self._kind
        return wrapper

    @context
    def _atomic(self, wrapper: Wrapper, *, durable: bool = False) -> Iterator[None]:
        """`transaction.atomic`, with errors of its BEGIN and COMMIT translated."""
        block: Any = transaction.atomic(using=wrapper.alias, durable=durable)
        try:
            block.__enter__()
        except DjangoDatabaseError as error:
            raise _translated(wrapper, error) from error
        try:
            yield
        except BaseException as error:
            block.__exit__(type(error), error, error.__traceback__)
            raise
        block.__exit__(None, None, None)

    def _connect(self, wrapper: Wrapper) -> None:
        try:
            wrapper.close_if_health_check_failed()
            wrapper.ensure_connection()
        except DjangoDatabaseError as error:
            raise _translated(wrapper, error) from error

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("Django provider")


def _check_before_commit(kind: DatabaseKind, wrapper: Wrapper) -> None:
    if wrapper.closed_in_transaction or wrapper.connection is None:
        raise TransactionMisused("this connection was closed, or lost, inside its atomic block, which is rolled back")
    kind.check_before_commit(wrapper)


def _translated(wrapper: Wrapper, error: BaseException) -> StorageError:
    """The error for a connection that cannot be opened, or a transaction that cannot begin."""
    if wrapper.vendor == "sqlite":
        import sqlite3

        from queuert.adapters.sqlite.connections.errors import translate

        cause = error.__cause__
        if isinstance(cause, sqlite3.Error):
            found = translate(cause, str(wrapper.settings_dict["NAME"]))
            if isinstance(found, StorageError):
                return found
    elif wrapper.vendor == "postgresql":
        from queuert.adapters.postgres.drivers.errors import lost_or_rejected

        found = lost_or_rejected(error)
        if not isinstance(found, StorageUnavailable):
            return found
    return StorageUnavailable(f"the database {wrapper.alias!r} cannot be reached: {error}")


if TYPE_CHECKING:
    _: type[SyncProvider[DjangoConnection]] = DjangoProvider
    __: type[Enlisting[DjangoConnection]] = DjangoProvider
