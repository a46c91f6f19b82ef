"""The sync provider: `sqlite3`, with a connection for each thread that uses it."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from queuert.adapters.sqlite.connections import abandoning, session
from queuert.adapters.sqlite.connections.commands import Command
from queuert.adapters.sqlite.connections.database import Database
from queuert.adapters.sqlite.connections.own import OwnConnection
from queuert.adapters.sqlite.drivers.base import BaseProvider
from queuert.adapters.waiting import IN_THREAD
from queuert.errors import TransactionNested
from queuert.ports.provider import SyncProvider, TimeLimit


class _ThreadConnections:
    """The connections of one thread. They are closed when the thread ends."""

    def __init__(self, database: Database) -> None:
        self.own = OwnConnection(database)
        self.beside = OwnConnection(database, read_only=True)
        """For reads that must not see what the open transaction has written."""
        self.in_use = threading.Lock()
        self.in_transaction = False

    def close(self) -> None:
        self.own.close()
        self.beside.close()

    def __del__(self) -> None:
        self.close()


class SqliteProvider(BaseProvider):
    """`sqlite3`, blocking. Threads can read at the same time. One thread writes at a time."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._local = threading.local()
        self._threads: WeakSet[_ThreadConnections] = WeakSet()
        self._mutex = threading.Lock()

    def transaction(self, first: Command | None = None) -> _Transaction:
        return _Transaction(self, first)

    def savepoint(self, connection: sqlite3.Connection) -> session.Savepoint:
        self._check_open()
        return self._savepoint(connection, own=self._is_own(connection))

    def execute(self, connection: sqlite3.Connection | None, command: Command) -> Any:
        self._check_open()
        if connection is not None:
            return self._run(connection, command, own=self._is_own(connection))
        if not command.writes and self._mine().in_transaction:
            return self._mine().beside.run_alone(command)
        mine = self.enter()
        try:
            return mine.own.run_alone(command)
        finally:
            self.leave(mine)

    def execute_within(self, limit: TimeLimit, command: Command) -> Any:
        mine = self._mine()
        alarm = IN_THREAD.alarm(limit.seconds, mine.own.interrupt)
        try:
            return self.execute(None, command)
        finally:
            alarm.cancel()

    def abandon(self, connection: sqlite3.Connection) -> bool:
        return abandoning.abandon(connection)

    def close(self) -> None:
        """A thread that uses its connections now closes them itself, when it is done."""
        self._closed = True
        with self._mutex:
            threads = list(self._threads)
        for each in threads:
            if each.in_use.acquire(blocking=False):
                try:
                    each.close()
                finally:
                    each.in_use.release()
        self._joined.close()

    def enter(self) -> _ThreadConnections:
        """This thread's connections, to be used until `leave` is called."""
        mine = self._mine()
        if mine.in_transaction:
            raise TransactionNested(
                "this thread has a transaction open and would wait for itself: use the transaction that is open"
            )
        mine.in_use.acquire()
        if self._closed:  # meanwhile, by another thread
            mine.in_use.release()
        self._check_open()
        return mine

    def leave(self, mine: _ThreadConnections) -> None:
        mine.in_use.release()
        if self._closed:
            with mine.in_use:
                mine.close()

    def _mine(self) -> _ThreadConnections:
        self._check_open()
        mine: _ThreadConnections | None = getattr(self._local, "connections", None)
        if mine is None:
            mine = self._local.connections = _ThreadConnections(self.database)
            with self._mutex:
                self._threads.add(mine)
        return mine

    def _is_own(self, connection: sqlite3.Connection) -> bool:
        mine: _ThreadConnections | None = getattr(self._local, "connections", None)
        return mine is not None and mine.own.raw is connection


class _Transaction:
    """A transaction on this thread's connection."""

    answer: Any = None

    def __init__(self, provider: SqliteProvider, first: Command | None) -> None:
        self._provider = provider
        self._first = first

    def __enter__(self) -> sqlite3.Connection:
        self._mine = self._provider.enter()
        try:
            connection, self.answer = self._mine.own.begin(self._first)
        except BaseException:
            self._provider.leave(self._mine)
            raise
        self._mine.in_transaction = True
        return connection

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            self._mine.own.end(error)
        finally:
            self._mine.in_transaction = False
            self._provider.leave(self._mine)


if TYPE_CHECKING:
    _: type[SyncProvider[sqlite3.Connection]] = SqliteProvider
