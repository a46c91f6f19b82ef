"""psycopg 3, blocking: for sync clients, and for plain `def` handlers in threads."""

from __future__ import annotations

import random
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import Connection as PsycopgConnection
from psycopg import Transaction

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.errors import DEADLOCK_OR_SERIALIZATION, SWALLOWED, unavailable
from queuert.adapters.postgres.drivers.psycopg_common import (
    ATTEMPTS,
    SHOW_ISOLATION,
    OwnCursor,
    Rows,
    check_before_commit,
    check_joined,
    closed,
    is_lost,
    is_open,
    note_if_gone,
    query,
    require_transaction,
    reraise,
    run,
    savepoint_names,
)
from queuert.adapters.postgres.drivers.psycopg_sync_sources import Source, SyncSource, sync_source
from queuert.errors import QueuertError, TransactionMisused
from queuert.ports.beginning import SyncBegun
from queuert.ports.provider import SyncBlock, SyncProvider

Connection = PsycopgConnection[Any]


class PsycopgSyncProvider:
    """psycopg's sync connections: from a pool of our own (given a connection string), from yours, or just one.

    A pool or connection that you give is used as it is and never closed. One connection serves one transaction at a
    time. `prepare=False`: no prepared statements and no session settings, for PgBouncer in transaction mode.
    `max_size` and `timeout` (seconds to wait for a connection) are for a pool of our own.
    """

    def __init__(self, source: SyncSource, *, prepare: bool = True, max_size: int = 10, timeout: float = 30.0) -> None:
        self._source: Source = sync_source(source, prepare=prepare, max_size=max_size, timeout=timeout)
        self._prepare = prepare
        self._closed = False
        self._reads_committed: bool | None = True if self._source.configured else None
        """Whether a statement that stands alone is read committed by default. None: not known yet."""

    def transaction(self, first: PgStatement | None = None) -> SyncBlock[Connection]:
        return _Transaction(self) if first is None else SyncBegun(self, _Transaction(self), first)

    def savepoint(self, connection: Connection) -> _Savepoint:
        return _Savepoint(self, connection)

    def execute(self, connection: Connection | None, command: PgStatement) -> Rows:
        self.check_open()
        if connection is None:
            return self._execute_alone(command)
        require_transaction(connection)
        return self._run(connection, command)

    def check(self, connection: Connection) -> None:
        self.check_open()
        check_joined(connection, PsycopgConnection, self._source.database)

    def in_transaction(self, connection: Connection) -> bool:
        return is_open(connection)

    def close(self) -> None:
        """Connections that are in use are closed when they are given back."""
        if not self._closed:
            self._closed = True
            self._source.close()

    def take(self) -> Connection:
        """A connection outside of any transaction, with autocommit. `give_back` it."""
        self.check_open()
        return self._source.take()

    def give_back(self, connection: Connection) -> None:
        self._source.give_back(connection)

    def check_open(self) -> None:
        if self._closed:
            raise closed()

    def _run(self, connection: Connection, command: PgStatement) -> Rows:
        return run(connection, command, prepare=self._prepare)

    def _execute_alone(self, command: PgStatement) -> Rows:
        for attempt in range(1, ATTEMPTS + 1):
            connection = self.take()
            try:
                return self._run_alone(connection, command)
            except psycopg.Error as error:
                if error.sqlstate not in DEADLOCK_OR_SERIALIZATION or attempt == ATTEMPTS:
                    raise reraise(error, inside=False) from error
            finally:
                self.give_back(connection)
            time.sleep(random.uniform(0, 0.02 * 2**attempt))
        raise AssertionError("unreachable")

    def _run_alone(self, connection: Connection, command: PgStatement) -> Rows:
        if command.alone or self._is_read_committed(connection):
            return self._run(connection, command)
        begun = begin(connection)
        try:
            rows = self._run(connection, command)
        except BaseException:
            roll_back(connection, begun)
            raise
        commit(connection, begun)
        return rows

    def _is_read_committed(self, connection: Connection) -> bool:
        if self._reads_committed is None:
            ((level,),) = self._run(connection, PgStatement(SHOW_ISOLATION, writes=False))
            self._reads_committed = bool(level == "read committed")
        return self._reads_committed


def begin(connection: Connection) -> Transaction:
    """Through psycopg's own object, so that the user's commit() in it is refused and his blocks become savepoints."""
    begun = Transaction(connection)
    try:
        begun.__enter__()
    except psycopg.Error as error:
        raise reraise(error, inside=False) from error
    return begun


def commit(connection: Connection, begun: Transaction) -> None:
    try:
        check_before_commit(connection)
    except TransactionMisused:
        roll_back(connection, begun)
        raise
    try:
        begun.__exit__(None, None, None)
    except psycopg.Error as error:
        if is_lost(error):
            raise unavailable(error) from error
        raise  # a deferred constraint of the user's, for one


def roll_back(connection: Connection, begun: Transaction) -> bool:
    """False: the transaction was gone already. An error here would only hide the one that led to it."""
    intact = is_open(connection)
    try:
        begun.__exit__(psycopg.Rollback, psycopg.Rollback(begun), None)
    except psycopg.Error:
        return False
    return intact


class _Transaction:
    """A transaction on a connection of ours."""

    answer: Any = None

    def __init__(self, provider: PsycopgSyncProvider) -> None:
        self._provider = provider

    def __enter__(self) -> Connection:
        self._connection = self._provider.take()
        try:
            self._begun = begin(self._connection)
        except BaseException:
            self._provider.give_back(self._connection)
            raise
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                commit(self._connection, self._begun)
            else:
                intact = roll_back(self._connection, self._begun)
                note_if_gone(self._connection, error, intact=intact)
        finally:
            self._provider.give_back(self._connection)


class _Savepoint:
    """A block inside the open transaction that is undone on an error."""

    def __init__(self, provider: PsycopgSyncProvider, connection: Connection) -> None:
        self._provider = provider
        self._connection = connection
        self._name = next(savepoint_names)

    def __enter__(self) -> None:
        self._provider.check_open()
        require_transaction(self._connection)
        self._say(f"SAVEPOINT {self._name}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self._release()
        else:
            note_if_gone(self._connection, error, intact=self._undo())

    def _release(self) -> None:
        try:
            check_before_commit(self._connection)
        except TransactionMisused as misuse:
            if self._undo():
                raise TransactionMisused(SWALLOWED) from misuse
            raise
        self._say(f"RELEASE {self._name}")

    def _undo(self) -> bool:
        """Go back to the savepoint. False: it is gone, together with its transaction."""
        if not is_open(self._connection):
            return False
        try:
            self._say(f"ROLLBACK TO {self._name}; RELEASE {self._name}")
        except (QueuertError, psycopg.Error):
            return False
        return True

    def _say(self, text: str) -> None:
        try:
            OwnCursor(self._connection).execute(query(text), prepare=False)
        except psycopg.Error as error:
            raise reraise(error, inside=True) from error


if TYPE_CHECKING:
    _: type[SyncProvider[Connection]] = PsycopgSyncProvider
