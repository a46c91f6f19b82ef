"""Connections of the memory store, and the transactions on them.

A transaction has its own version of the data (see `Tables`). It begins with the version that is
committed. Each mutation replaces it by the next version. The commit makes it the committed version
of the store. A savepoint remembers a version, and puts it back if its block ends with an error.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

from queuert.adapters.memory.command import Command
from queuert.adapters.memory.store import MemoryStore
from queuert.adapters.memory.tables import Tables
from queuert.base.blocking import Block
from queuert.errors import TransactionClosed, TransactionMisused, TransactionNested

T = TypeVar("T")


class MemoryConnection:
    """Your connection to a memory store.

    `with connection.transaction():` opens a transaction, and so does `async with`. An adapter makes
    a new connection for each transaction of its own.
    """

    __slots__ = ("_mutex", "store", "tables")

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.tables: Tables | None = None
        """The version of the open transaction; None if no transaction is open."""
        self._mutex = threading.Lock()
        """Held while a mutation is carried out, because several threads may share a transaction."""

    @property
    def in_transaction(self) -> bool:
        return self.tables is not None

    def transaction(self, first: Command[Any] | None = None) -> MemoryTransaction:
        """A block that commits at its end, and rolls back on an error. For `with` and `async with`.

        `first` is a command that the transaction begins with. If it fails, nothing has begun.
        """
        return MemoryTransaction(self, first)

    def savepoint(self) -> MemorySavepoint:
        """A block inside the transaction that is undone on an error.

        For `with` and `async with`.
        """
        return MemorySavepoint(self)

    def run(self, command: Command[T]) -> T:
        """Carry out a command in the open transaction: all of it, or nothing."""
        if not command.writes:
            return read(self.store, self.open_tables(), command)
        with self._mutex:
            tables = self.open_tables().copy(self.store.clock())
            result = command.function(tables)
            self.tables = tables
            return result

    def end(self) -> Tables | None:
        """No transaction is open any more. Returns its version, or None if it had ended before."""
        with self._mutex:
            tables, self.tables = self.tables, None
        return tables

    def open_tables(self) -> Tables:
        if self.tables is None:
            raise TransactionClosed("no transaction is open on this memory connection: it has ended, or never began")
        return self.tables


def read(store: MemoryStore, tables: Tables, command: Command[T]) -> T:
    """Carry out a command that changes nothing."""
    return command.function(tables.at(store.clock()))


class MemoryTransaction:
    __slots__ = ("_connection", "_first", "answer")

    def __init__(self, connection: MemoryConnection, first: Command[Any] | None) -> None:
        self._connection = connection
        self._first = first
        self.answer: Any = None
        """The result of the `first` command."""

    def __enter__(self) -> MemoryConnection:
        self._refuse_nesting()
        self._connection.store.writer.acquire()
        return self._begin()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(commit=kind is None)

    async def __aenter__(self) -> MemoryConnection:
        self._refuse_nesting()
        await self._connection.store.writer.acquire_async()
        return self._begin()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(commit=kind is None)

    def _refuse_nesting(self) -> None:
        if self._connection.in_transaction:
            raise TransactionNested("a transaction is open on this memory connection: use savepoint() inside it")

    def _begin(self) -> MemoryConnection:
        connection = self._connection
        connection.tables = connection.store.committed
        try:
            if self._first is not None:
                self.answer = connection.run(self._first)
        except BaseException:
            self._end(commit=False)
            raise
        return connection

    def _end(self, *, commit: bool) -> None:
        store, tables = self._connection.store, self._connection.end()
        if tables is None:
            raise TransactionMisused("this transaction was ended by code inside its block: leave that to the block")
        if commit:
            store.committed = tables
        store.writer.release()


class MemorySavepoint(Block[None]):
    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection

    async def __aenter__(self) -> None:
        self._before = self._connection.open_tables()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        # If the transaction has ended inside the block, the savepoint has ended with it.
        if error is not None and self._connection.in_transaction:
            self._connection.tables = self._before
