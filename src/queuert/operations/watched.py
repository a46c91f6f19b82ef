"""Adapters with somebody who hears of their errors, by the name of the operation.

The adapters themselves know nothing of it. Only clients with observers look at theirs through these.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

from queuert.contexts import async_context, context
from queuert.errors import NotifyUnavailable, QueuertError, SchemaTooNew, StorageError
from queuert.operations.observers import Observers
from queuert.ports.program import Program
from queuert.ports.provider import Guarded, GuardedTransaction
from queuert.ports.state import SyncStateAdapter

T = TypeVar("T")
S = TypeVar("S")
N = TypeVar("N")
P = TypeVar("P")
Report = Callable[[str, Exception], None]


def watched(state: S, notify: N, publisher: P, observers: Observers) -> tuple[S, N, P]:
    """The adapters of a client, sync or async, such that observers hear of their errors."""

    def state_failed(operation: str, error: Exception) -> None:
        observers.state_error(operation=operation, **_facts(error))

    def notify_failed(operation: str, error: Exception) -> None:
        observers.notify_error(operation=operation, **_facts(error))

    seen: Any = copy.copy(state)
    seen.operations = WatchedOperations(seen.operations, state_failed)
    if isinstance(state, SyncStateAdapter):
        seen.provider = WatchedSyncProvider(seen.provider, state_failed)
    else:
        guarded = isinstance(seen.provider, Guarded)
        seen.provider = (WatchedGuardedProvider if guarded else WatchedProvider)(seen.provider, state_failed)
        if seen.sync_provider is not None:
            seen.sync_provider = WatchedSyncProvider(seen.sync_provider, state_failed)
    channel: Any = WatchedNotify(notify, notify_failed)
    publishing: Any = WatchedNotify(publisher, notify_failed)
    return seen, channel, publishing


def _facts(error: Exception) -> dict[str, str]:
    return {"error_type": type(error).__qualname__, "error_message": str(error)}


def _is_fault(error: Exception) -> bool:
    """Whether the adapter failed, and did not just answer that it cannot be done."""
    if isinstance(error, StorageError):
        return not isinstance(error, SchemaTooNew)
    return isinstance(error, NotifyUnavailable) or not isinstance(error, QueuertError)


class Watched:
    """An adapter, its callables wrapped on first use."""

    def __init__(self, inner: Any, report: Report) -> None:
        self._inner = inner
        self._report = report

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def _failed(self, name: str, error: Exception) -> None:
        if _is_fault(error):
            self._report(name, error)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not name.startswith("_") and callable(value):
            value = self._wrap(name, value)
            setattr(self, name, value)
        return value


class WatchedOperations(Watched):
    """State operations: a program that ends with a fault of the database is told of."""

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Program[Any]:
            return self._watch(name, function(*args, **options))

        return call

    def _watch(self, name: str, program: Program[T]) -> Program[T]:
        try:
            return (yield from program)
        except Exception as error:
            self._failed(name, error)
            raise


class WatchedNotify(Watched):
    """A notify adapter, sync or async."""

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            try:
                answer = function(*args)
            except Exception as error:
                self._failed(name, error)
                raise
            return self._watch(name, answer) if inspect.isawaitable(answer) else answer

        return call

    async def _watch(self, name: str, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except Exception as error:
            self._failed(name, error)
            raise


class WatchedProvider:
    """A provider whose transactions, when they cannot begin or commit, are told of. Commands are part of operations."""

    def __init__(self, inner: Any, report: Report) -> None:
        self._inner = inner
        self._report = report

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @async_context
    async def transaction(self) -> AsyncIterator[Any]:
        block = self._inner.transaction()
        connection = await self._step(block.__aenter__())
        try:
            yield connection
        except BaseException as error:
            await block.__aexit__(type(error), error, error.__traceback__)
            raise
        await self._step(block.__aexit__(None, None, None))

    async def _step(self, step: Awaitable[T]) -> T:
        try:
            return await step
        except Exception as error:
            if _is_fault(error):
                self._report("transaction", error)
            raise


class WatchedGuardedProvider(WatchedProvider):
    """The same for one whose transactions guard themselves."""

    def guarded_transaction(self, first: Any) -> _WatchedTransaction:
        return _WatchedTransaction(self._inner.guarded_transaction(first), self._step)

    def check_inside(self, connection: Any) -> None:
        self._inner.check_inside(connection)


class _WatchedTransaction:
    def __init__(self, block: GuardedTransaction, step: Callable[[Awaitable[Any]], Awaitable[Any]]) -> None:
        self._block = block
        self._step = step

    @property
    def answer(self) -> Any:
        return self._block.answer

    async def __aenter__(self) -> Any:
        return await self._step(self._block.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leaving = self._block.__aexit__(kind, error, traceback)
        await (leaving if error is not None else self._step(leaving))


class WatchedSyncProvider:
    """The same for a sync provider."""

    def __init__(self, inner: Any, report: Report) -> None:
        self._inner = inner
        self._report = report

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @context
    def transaction(self) -> Iterator[Any]:
        block = self._inner.transaction()
        connection = self._step(block.__enter__)
        try:
            yield connection
        except BaseException as error:
            block.__exit__(type(error), error, error.__traceback__)
            raise
        self._step(block.__exit__, None, None, None)

    def _step(self, step: Callable[..., T], *args: Any) -> T:
        try:
            return step(*args)
        except Exception as error:
            if _is_fault(error):
                self._report("transaction", error)
            raise
