"""`transaction(first=…)` for providers whose driver cannot send a command along with BEGIN.

The guard is a savepoint that lasts as long as the transaction. If code inside has ended the
transaction, the savepoint is gone, even if another transaction was begun since.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

from queuert.base.blocking import Awaited, Block
from queuert.base.contexts import async_context
from queuert.ports.provider import AsyncProvider, BlockingProvider, SyncProvider

__all__ = ["Begun", "SyncBegun"]

Conn = TypeVar("Conn")


class Begun(Block[Conn]):
    """The block of a provider's plain transaction, with a guard and a first command if there is
    one.
    """

    def __init__(
        self, provider: AsyncProvider[Conn], block: AbstractAsyncContextManager[Conn, None], first: Any
    ) -> None:
        self.answer: Any = None
        self._guarded = block if first is None else self._guard(provider, block, first)

    @async_context
    async def _guard(
        self, provider: AsyncProvider[Conn], block: AbstractAsyncContextManager[Conn, None], first: Any
    ) -> AsyncIterator[Conn]:
        # The guard first: PostgreSQL keeps two owners for a row that is locked before a savepoint
        # and written after it.
        async with block as connection, provider.savepoint(connection):
            self.answer = await provider.execute(connection, first)
            yield connection

    async def __aenter__(self) -> Conn:
        return await self._guarded.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        await self._guarded.__aexit__(kind, error, traceback)


class SyncBegun(Begun[Conn]):
    """`Begun` for a sync provider."""

    def __init__(self, provider: SyncProvider[Conn], block: AbstractContextManager[Conn, None], first: Any) -> None:
        super().__init__(BlockingProvider(provider), Awaited(block), first)
