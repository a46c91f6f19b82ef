"""The providers: memory connections and commands, blocking and awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuert.adapters.memory.command import Command, Write
from queuert.adapters.memory.connection import MemoryConnection, MemorySavepoint, MemoryTransaction
from queuert.adapters.memory.store import MemoryStore
from queuert.errors import ClientClosed, TransactionMisused
from queuert.ports.beginning import Begun, SyncBegun
from queuert.ports.provider import AsyncBlock, AsyncProvider, SyncBlock, SyncProvider


class _Provider:
    """What both have in common. Closing one leaves the store and its other users alone."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._closed = False

    def _transaction(self) -> MemoryTransaction:
        self._check_open()
        return MemoryConnection(self.store).transaction()

    def savepoint(self, connection: MemoryConnection) -> MemorySavepoint:
        self._check_open()
        self._check_own(connection)
        return connection.savepoint()

    def check(self, connection: MemoryConnection) -> None:
        self._check_open()
        if not isinstance(connection, MemoryConnection):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TransactionMisused(f"expected a MemoryConnection, got {type(connection).__name__}")
        self._check_own(connection)
        if not connection.in_transaction:
            raise TransactionMisused(
                "no transaction is open on this memory connection: open one with connection.transaction()"
            )

    def in_transaction(self, connection: MemoryConnection) -> bool:
        return connection.in_transaction

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("memory provider")

    def _check_own(self, connection: MemoryConnection) -> None:
        if connection.store is not self.store:
            raise TransactionMisused("this connection belongs to another memory store")

    def _run(self, connection: MemoryConnection | None, command: Command[Any]) -> Any:
        """Carry out a command that needs no lock of its own."""
        if connection is None:
            return self.store.run(command, in_transaction=False)
        self._check_own(connection)
        connection.require_transaction()
        return self.store.run(command, in_transaction=True)


class MemoryProvider(_Provider):
    """A memory store for threads and scripts."""

    def transaction(self, first: Command[Any] | None = None) -> SyncBlock[MemoryConnection]:
        return self._transaction() if first is None else SyncBegun(self, self._transaction(), first)

    def execute(self, connection: MemoryConnection | None, command: Command[Any]) -> Any:
        self._check_open()
        if connection is not None or not isinstance(command, Write):
            return self._run(connection, command)
        self.store.writer.acquire()
        try:
            return self.store.run_and_commit(command)
        finally:
            self.store.writer.release()

    def close(self) -> None:
        self._closed = True


class AsyncMemoryProvider(_Provider):
    """A memory store for event loops."""

    def transaction(self, first: Command[Any] | None = None) -> AsyncBlock[MemoryConnection]:
        return self._transaction() if first is None else Begun(self, self._transaction(), first)

    async def execute(self, connection: MemoryConnection | None, command: Command[Any]) -> Any:
        self._check_open()
        if connection is not None or not isinstance(command, Write):
            return self._run(connection, command)
        await self.store.writer.acquire_async()
        try:
            return self.store.run_and_commit(command)
        finally:
            self.store.writer.release()

    async def close(self) -> None:
        self._closed = True


if TYPE_CHECKING:
    _sync: type[SyncProvider[MemoryConnection]] = MemoryProvider
    _async: type[AsyncProvider[MemoryConnection]] = AsyncMemoryProvider
