"""Concurrent calls on one connection take turns.

Drivers differ in this: some queue such calls, others refuse them. And an operation may need several
statements, which must not be mixed with those of another one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from typing import Any

from queuert.errors import TransactionMisused

_inside: ContextVar[tuple[object, ...]] = ContextVar("queuert_savepoints", default=())
"""The savepoints that surround the running code. Tasks that are started there inherit them."""


class Turns:
    """First come, first served, for each connection. An idle connection costs nothing."""

    def __init__(self) -> None:
        self._waiting: dict[int, deque[asyncio.Future[None]]] = {}
        """By the id of a connection that is in use. Its user keeps it alive."""
        self.savepoints: dict[int, list[object]] = {}
        """The savepoints that are open on a connection, the innermost one last."""

    async def begin(self, connection: Any) -> None:
        """Wait until the connection is free, and take it."""
        waiting = self._waiting.get(id(connection))
        if waiting is None:
            self._waiting[id(connection)] = deque()
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting.append(turn)
        try:
            await turn
        except BaseException:
            if turn.cancelled():
                waiting.remove(turn)
            else:  # it was our turn at the same moment
                self.end(connection)
            raise

    def end(self, connection: Any) -> None:
        waiting = self._waiting[id(connection)]
        while waiting:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        del self._waiting[id(connection)]

    def savepoint(
        self, connection: Any, block: AbstractAsyncContextManager[None, None]
    ) -> AbstractAsyncContextManager[None, None]:
        """The block of a savepoint, whose beginning and end take turns with other calls."""
        return _Savepoint(self, connection, block)


class _Savepoint(AbstractAsyncContextManager[None, None]):
    """Savepoints must be nested. If two tasks each opened one, they would undo each other's
    work.
    """

    def __init__(self, turns: Turns, connection: Any, block: AbstractAsyncContextManager[None, None]) -> None:
        self._turns = turns
        self._connection = connection
        self._block = block

    async def __aenter__(self) -> None:
        await self._turns.begin(self._connection)
        try:
            opened = self._turns.savepoints.get(id(self._connection))
            self._outside = _inside.get()
            if opened and opened[-1] not in self._outside:
                raise TransactionMisused(
                    "another task has a savepoint open in this transaction: open savepoints one after another, or one "
                    "inside the other"
                )
            await self._block.__aenter__()
            self._turns.savepoints.setdefault(id(self._connection), []).append(self)
        finally:
            self._turns.end(self._connection)
        _inside.set((*self._outside, self))

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        _inside.set(self._outside)
        try:
            await self._turns.begin(self._connection)
            try:
                await self._block.__aexit__(kind, error, traceback)
            finally:
                self._turns.end(self._connection)
        finally:
            opened = self._turns.savepoints[id(self._connection)]
            opened.remove(self)
            if not opened:
                del self._turns.savepoints[id(self._connection)]
