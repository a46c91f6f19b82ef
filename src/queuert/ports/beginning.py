"""`transaction(first=…)` for providers whose driver cannot send a command along with BEGIN.

The guard is a savepoint that lasts as long as the transaction. If code inside has ended the transaction, the savepoint
is gone, even if another transaction was begun since.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from types import TracebackType
from typing import Any, Generic, TypeVar

from queuert.ports.provider import AsyncProvider, SyncProvider

Conn = TypeVar("Conn")


class SyncBegun(Generic[Conn]):
    """The block of a provider's plain transaction, with a guard and a first command if there is one."""

    answer: Any = None

    def __init__(self, provider: SyncProvider[Conn], block: AbstractContextManager[Conn, None], first: Any) -> None:
        self._provider = provider
        self._block = block
        self._first = first

    def __enter__(self) -> Conn:
        with ExitStack() as stack:
            connection = stack.enter_context(self._block)
            if self._first is not None:
                # The guard first: PostgreSQL keeps two owners for a row that is locked before a savepoint and written
                # after it.
                stack.enter_context(self._provider.savepoint(connection))
                self.answer = self._provider.execute(connection, self._first)
            self._open = stack.pop_all()
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, traceback)


class Begun(Generic[Conn]):
    """`SyncBegun`, awaited."""

    answer: Any = None

    def __init__(
        self, provider: AsyncProvider[Conn], block: AbstractAsyncContextManager[Conn, None], first: Any
    ) -> None:
        self._provider = provider
        self._block = block
        self._first = first

    async def __aenter__(self) -> Conn:
        async with AsyncExitStack() as stack:
            connection = await stack.enter_async_context(self._block)
            if self._first is not None:
                await stack.enter_async_context(self._provider.savepoint(connection))
                self.answer = await self._provider.execute(connection, self._first)
            self._open = stack.pop_all()
        return connection

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._open.__aexit__(kind, error, traceback)
