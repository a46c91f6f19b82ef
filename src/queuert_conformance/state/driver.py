"""One awaited interface for async and sync adapters, so that every case is written once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from inspect import isawaitable
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, TypeVar

from queuert.ports.program import Program, answered
from queuert.ports.provider import run, run_async
from queuert.ports.state import StateAdapter, StateOperations, SyncStateAdapter

T = TypeVar("T")

AnyStateAdapter = StateAdapter[Any] | SyncStateAdapter[Any]


class StateDriver(Protocol):
    """Runs the programs of one adapter. `None` as the connection means outside any transaction."""

    @property
    def operations(self) -> StateOperations:
        """The operations of the adapter."""
        ...

    async def run(self, program: Program[T], connection: Any | None = None) -> T:
        """Run an operation and return its result."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction of the provider. The block is given the connection."""
        ...

    def beginning_with(self, first: Program[T]) -> AbstractAsyncContextManager[tuple[Any, T]]:
        """Open a transaction with the only command of a program as its first command.

        The block is given the connection and the result of the program.
        """
        ...

    def savepoint(self, connection: Any) -> AbstractAsyncContextManager[None]:
        """Set a savepoint in the transaction that is open on the connection."""
        ...

    async def call(self, function: Callable[[], Any]) -> Any:
        """Call a function where connections may be used, and await an awaitable result."""
        ...

    async def in_transaction(self, connection: Any) -> bool:
        """Whether a transaction is open on the connection."""
        ...

    def abandon(self, connection: Any) -> bool:
        """End the transaction of the connection by force, from another thread if it is sync.

        False: the provider cannot do that.
        """
        ...

    async def check(self, connection: Any) -> None:
        """Raise an error if the connection cannot be joined."""
        ...

    async def close(self) -> None:
        """Close the adapter."""
        ...

    def release(self) -> None:
        """Release what the driver itself holds. Nothing runs after this."""
        ...


def drive(adapter: AnyStateAdapter) -> StateDriver:
    """The driver for this flavour of adapter."""
    return AsyncStateDriver(adapter) if isinstance(adapter, StateAdapter) else SyncStateDriver(adapter)


class AsyncStateDriver:
    def __init__(self, adapter: StateAdapter[Any]) -> None:
        self._adapter = adapter
        self._provider = adapter.provider
        self.operations = adapter.operations

    async def run(self, program: Program[T], connection: Any | None = None) -> T:
        return await run_async(self._provider, connection, program)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._provider.transaction()

    @asynccontextmanager
    async def beginning_with(self, first: Program[T]) -> AsyncGenerator[tuple[Any, T], None]:
        block = self._provider.transaction(next(first))
        async with block as connection:
            yield connection, answered(first, block.answer)

    def savepoint(self, connection: Any) -> AbstractAsyncContextManager[None]:
        return self._provider.savepoint(connection)

    async def call(self, function: Callable[[], Any]) -> Any:
        result = function()
        return await result if isawaitable(result) else result

    async def in_transaction(self, connection: Any) -> bool:
        return self._provider.in_transaction(connection)

    def abandon(self, connection: Any) -> bool:
        return _abandon(self._provider, connection)

    async def check(self, connection: Any) -> None:
        self._provider.check(connection)

    async def close(self) -> None:
        await self._adapter.close()

    def release(self) -> None:
        """It holds nothing."""


class SyncStateDriver:
    """A sync adapter, run on its own thread, because its connections may be bound to one thread.

    While it waits for a lock, the event loop and the drivers of other connections continue.
    """

    def __init__(self, adapter: SyncStateAdapter[Any]) -> None:
        self._adapter = adapter
        self._provider = adapter.provider
        self._thread = _Worker()
        self.operations = adapter.operations

    async def run(self, program: Program[T], connection: Any | None = None) -> T:
        return await self._thread.call(lambda: run(self._provider, connection, program))

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._block(self._provider.transaction)

    @asynccontextmanager
    async def beginning_with(self, first: Program[T]) -> AsyncGenerator[tuple[Any, T], None]:
        block = await self._thread.call(lambda: self._provider.transaction(next(first)))
        async with self._block(lambda: block) as connection:
            yield connection, answered(first, block.answer)

    def savepoint(self, connection: Any) -> AbstractAsyncContextManager[None]:
        return self._block(lambda: self._provider.savepoint(connection))

    async def call(self, function: Callable[[], Any]) -> Any:
        result = await self._thread.call(function)
        return await result if isawaitable(result) else result

    async def in_transaction(self, connection: Any) -> bool:
        return await self._thread.call(lambda: self._provider.in_transaction(connection))

    def abandon(self, connection: Any) -> bool:
        return _abandon(self._provider, connection)

    async def check(self, connection: Any) -> None:
        await self._thread.call(lambda: self._provider.check(connection))

    async def close(self) -> None:
        await self._thread.call(self._adapter.close)

    def release(self) -> None:
        self._thread.stop()

    @asynccontextmanager
    async def _block(self, opened: Callable[[], AbstractContextManager[T]]) -> AsyncGenerator[T, None]:
        manager = await self._thread.call(opened)
        entered = await self._thread.call(manager.__enter__)
        try:
            yield entered
        except BaseException as error:
            kind, caught, traceback = type(error), error, error.__traceback__
            if not await self._thread.call(lambda: manager.__exit__(kind, caught, traceback)):
                raise
        else:
            await self._thread.call(lambda: manager.__exit__(None, None, None))


def _abandon(provider: object, connection: Any) -> bool:
    abandon: Callable[[Any], bool] | None = getattr(provider, "abandon", None)
    return abandon is not None and abandon(connection)


class _Worker:
    """A daemon thread that runs calls in order.

    A call that hangs does not keep the process alive.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._work, name="queuert-conformance", daemon=True).start()

    async def call(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            try:
                result = function()
            except BaseException as error:
                finish = _failure(future, error)
            else:
                finish = _success(future, result)
            if not loop.is_closed():
                loop.call_soon_threadsafe(finish)

        self._calls.put(work)
        return await future

    def stop(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while (work := self._calls.get()) is not None:
            work()


def _success(future: asyncio.Future[T], result: T) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_result(result)


def _failure(future: asyncio.Future[T], error: BaseException) -> Callable[[], None]:
    return lambda: None if future.done() else future.set_exception(error)
