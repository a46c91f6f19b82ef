"""Connections of the memory store, and the transactions on them."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from queuert.adapters.memory.store import MemoryStore
from queuert.errors import TransactionClosed, TransactionNested


class MemoryConnection:
    """Your place in a memory store's transaction.

    `with connection.transaction():`, or `async with`, opens one; adapters make a connection for each of theirs.
    """

    __slots__ = ("_in_transaction", "store")

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._in_transaction = False

    @property
    def in_transaction(self) -> bool:
        return self._in_transaction

    def transaction(self) -> MemoryTransaction:
        """A block that commits at its end, and rolls back on an error. For `with` and `async with`."""
        return MemoryTransaction(self)

    def savepoint(self) -> MemorySavepoint:
        """A block inside the transaction that is undone on an error. For `with` and `async with`."""
        return MemorySavepoint(self)

    def require_transaction(self) -> None:
        if not self._in_transaction:
            raise TransactionClosed("no transaction is open on this memory connection: it has ended, or never began")

    def begun(self) -> None:
        """The writer's lock has been taken for this connection."""
        self._in_transaction = True

    def ended(self, *, commit: bool) -> None:
        """The transaction's block is over: keep or undo what it did, and let the next writer in."""
        self._in_transaction = False
        try:
            if commit:
                self.store.commit()
            else:
                self.store.roll_back()
        finally:
            self.store.writer.release()


class MemoryTransaction:
    __slots__ = ("_connection",)

    answer: Any = None

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection

    def __enter__(self) -> MemoryConnection:
        self._refuse_nesting()
        self._connection.store.writer.acquire()
        self._connection.begun()
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.ended(commit=kind is None)

    async def __aenter__(self) -> MemoryConnection:
        self._refuse_nesting()
        await self._connection.store.writer.acquire_async()
        self._connection.begun()
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.ended(commit=kind is None)

    def _refuse_nesting(self) -> None:
        if self._connection.in_transaction:
            raise TransactionNested("a transaction is open on this memory connection: use savepoint() inside it")


class MemorySavepoint:
    __slots__ = ("_connection", "_mark")

    def __init__(self, connection: MemoryConnection) -> None:
        self._connection = connection
        self._mark = 0

    def __enter__(self) -> None:
        self._connection.require_transaction()
        self._mark = self._connection.store.mark()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # A transaction that has ended inside the block has taken the savepoint with it.
        if kind is not None and self._connection.in_transaction:
            self._connection.store.roll_back(self._mark)

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)
