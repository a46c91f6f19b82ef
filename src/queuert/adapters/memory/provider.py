"""The providers: connections and commands of the memory store, blocking and awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from queuert.adapters.memory.command import Command
from queuert.adapters.memory.connection import MemoryConnection, MemorySavepoint, MemoryTransaction, read
from queuert.adapters.memory.store import MemoryStore
from queuert.errors import ClientClosed, TransactionMisused
from queuert.ports.provider import AsyncProvider, SyncProvider, TimeLimit, Upkeep


class _Provider:
    """What both have in common. Closing one leaves the store and its other users alone."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._closed = False

    def transaction(self, first: Command[Any] | None = None) -> MemoryTransaction:
        self._check_open()
        return MemoryConnection(self.store).transaction(first)

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

    def abandon(self, connection: MemoryConnection) -> bool:
        if connection.end() is not None:
            self.store.writer.release()
        return True

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosed("memory provider")

    def _check_own(self, connection: MemoryConnection) -> None:
        if connection.store is not self.store:
            raise TransactionMisused("this connection belongs to another memory store")

    def _carry_out(self, connection: MemoryConnection | None, command: Command[Any]) -> Any:
        """A command of an open transaction, or one that needs none."""
        if connection is None:
            return read(self.store, self.store.committed, command)
        self._check_own(connection)
        return connection.run(command)


class MemoryProvider(_Provider):
    """A memory store for threads and scripts."""

    def execute(self, connection: MemoryConnection | None, command: Command[Any]) -> Any:
        if connection is not None or not command.writes:
            self._check_open()
            return self._carry_out(connection, command)
        with self.transaction() as own:
            return own.run(command)

    def close(self) -> None:
        self._closed = True


class AsyncMemoryProvider(_Provider):
    """A memory store for event loops."""

    async def execute(self, connection: MemoryConnection | None, command: Command[Any]) -> Any:
        if connection is not None or not command.writes:
            self._check_open()
            return self._carry_out(connection, command)
        async with self.transaction() as own:
            return own.run(command)

    async def execute_within(self, limit: TimeLimit, command: Command[Any]) -> Any:  # noqa: ARG002
        """Nothing here can hang."""
        return await self.execute(None, command)

    async def reserve(self, statement_timeout: float) -> None:
        """There is one writer at a time."""

    async def unreserve(self) -> None:
        """Nothing was set aside."""

    def room(self) -> tuple[int, int] | None:
        return None

    async def close(self) -> None:
        self._closed = True


if TYPE_CHECKING:
    _sync: type[SyncProvider[MemoryConnection]] = MemoryProvider
    _async: type[AsyncProvider[MemoryConnection]] = AsyncMemoryProvider
    _upkeep: type[Upkeep] = AsyncMemoryProvider
