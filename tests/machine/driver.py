"""One face for sync and async adapters: programs are run at once, transactions stay open from call to call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

from queuert.ports.program import Program
from queuert.ports.provider import run, run_async
from queuert.ports.state import StateAdapter, StateOperations, SyncStateAdapter

T = TypeVar("T")

AnyStateAdapter = StateAdapter[Any] | SyncStateAdapter[Any]


class Undone(Exception):
    """Raised in a block to have it rolled back."""


class Driver(Protocol):
    """An adapter with at most one open transaction, and savepoints in it."""

    operations: StateOperations

    def run(self, program: Program[T], *, inside: bool) -> T:
        """Inside the open transaction, or on a connection of the adapter's own."""
        ...

    def begin(self) -> None: ...

    def savepoint(self) -> None: ...

    def end(self, *, undo: bool) -> None:
        """Leave the innermost block: the last savepoint, or the transaction if there is none."""
        ...

    def close(self) -> None: ...


def drive(adapter: AnyStateAdapter) -> Driver:
    return AsyncDriver(adapter) if isinstance(adapter, StateAdapter) else SyncDriver(adapter)


class SyncDriver:
    def __init__(self, adapter: SyncStateAdapter[Any]) -> None:
        self.operations = adapter.operations
        self._adapter = adapter
        self._connection: Any = None
        self._blocks: list[AbstractContextManager[Any]] = []

    def run(self, program: Program[T], *, inside: bool) -> T:
        return run(self._adapter.provider, self._connection if inside else None, program)

    def begin(self) -> None:
        block = self._adapter.provider.transaction()
        self._connection = block.__enter__()
        self._blocks.append(block)

    def savepoint(self) -> None:
        block = self._adapter.provider.savepoint(self._connection)
        block.__enter__()
        self._blocks.append(block)

    def end(self, *, undo: bool) -> None:
        block = self._blocks.pop()
        if not self._blocks:
            self._connection = None
        if undo:
            block.__exit__(Undone, Undone(), None)
        else:
            block.__exit__(None, None, None)

    def close(self) -> None:
        while self._blocks:
            self.end(undo=True)
        self._adapter.close()


class AsyncDriver:
    """Everything happens in one task, as it would in a user's coroutine; between the calls the loop stands still."""

    def __init__(self, adapter: StateAdapter[Any]) -> None:
        self.operations = adapter.operations
        self._adapter = adapter
        self._connection: Any = None
        self._blocks: list[AbstractAsyncContextManager[Any]] = []
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._calls: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]] | None] = asyncio.Queue()
        self._task = self._loop.create_task(self._serve())

    def run(self, program: Program[T], *, inside: bool) -> T:
        connection = self._connection if inside else None
        return self._call(lambda: run_async(self._adapter.provider, connection, program))

    def begin(self) -> None:
        block = self._adapter.provider.transaction()
        self._connection = self._call(block.__aenter__)
        self._blocks.append(block)

    def savepoint(self) -> None:
        block = self._adapter.provider.savepoint(self._connection)
        self._call(block.__aenter__)
        self._blocks.append(block)

    def end(self, *, undo: bool) -> None:
        block = self._blocks.pop()
        if not self._blocks:
            self._connection = None
        if undo:
            self._call(lambda: block.__aexit__(Undone, Undone(), None))
        else:
            self._call(lambda: block.__aexit__(None, None, None))

    def close(self) -> None:
        while self._blocks:
            self.end(undo=True)
        self._call(self._adapter.close)
        self._calls.put_nowait(None)
        self._loop.run_until_complete(self._task)
        self._runner.close()

    def _call(self, function: Callable[[], Awaitable[T]]) -> T:
        answer: asyncio.Future[Any] = self._loop.create_future()
        self._calls.put_nowait((function, answer))
        return cast(T, self._loop.run_until_complete(answer))

    async def _serve(self) -> None:
        while (call := await self._calls.get()) is not None:
            function, answer = call
            try:
                answer.set_result(await function())
            except Exception as error:
                answer.set_exception(error)
