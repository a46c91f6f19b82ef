"""Wrappers that report the errors of adapters to observers, with the name of the operation.

The adapters need no code for this. Only clients with observers use the wrappers.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import nullcontext
from typing import Any, TypeVar

from queuert.base.blocking import Awaited, Block
from queuert.base.contexts import context
from queuert.engine.events.observers import Observers
from queuert.errors import NotifyUnavailable, QueuertError, SchemaTooNew, StorageError
from queuert.ports.program import Program

T = TypeVar("T")
S = TypeVar("S")
N = TypeVar("N")
Report = Callable[[str, Exception], None]


def watched(state: S, notify: N, observers: Observers) -> tuple[S, N]:
    """Wrap the adapters of a client, sync or async, so that observers are told of their errors."""

    def state_failed(operation: str, error: Exception) -> None:
        observers.state_error(operation=operation, **_facts(error))

    seen: Any = copy.copy(state)
    seen.operations = WatchedOperations(seen.operations, state_failed)
    seen.provider = WatchedProvider(seen.provider, state_failed)
    if getattr(seen, "sync_provider", None) is not None:
        seen.sync_provider = WatchedProvider(seen.sync_provider, state_failed)
    return seen, watched_notify(notify, observers)


def watched_notify(notify: N, observers: Observers) -> N:
    """Wrap a channel, so that observers are told of its errors."""

    def failed(operation: str, error: Exception) -> None:
        observers.notify_error(operation=operation, **_facts(error))

    channel: Any = WatchedNotify(notify, failed)
    watched_channel: N = channel
    return watched_channel


def _facts(error: Exception) -> dict[str, str]:
    return {"error_type": type(error).__qualname__, "error_message": str(error)}


def _is_fault(error: Exception) -> bool:
    """Whether the adapter failed. An error about the caller's request is not a failure."""
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
    """State operations. A program that fails because of the database is reported."""

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
    """A notify adapter, sync or async.

    The operations of a topic are `<topic>` and `listen_<topic>`.
    """

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            operation = _operation(name, args)
            try:
                answer = function(*args)
            except Exception as error:
                self._failed(operation, error)
                raise
            return self._watch(operation, answer) if inspect.isawaitable(answer) else answer

        return call

    async def _watch(self, operation: str, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except Exception as error:
            self._failed(operation, error)
            raise


def _operation(name: str, args: tuple[Any, ...]) -> str:
    if name == "publish":
        return str(args[0])
    return f"listen_{args[0]}" if name == "listen" else name


class WatchedProvider:
    """A provider, sync or async, that reports transactions which cannot begin or commit.

    Errors of commands are reported by the operations they belong to.
    """

    def __init__(self, inner: Any, report: Report) -> None:
        self._inner = inner
        self._report = report

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def transaction(self, first: Any = None) -> _WatchedBlock:
        return _WatchedBlock(
            self._inner.transaction() if first is None else self._inner.transaction(first), self._report
        )


class _WatchedBlock(Block[Any]):
    """The block of a transaction, for `with` or `async with`, as its provider is."""

    def __init__(self, block: Any, report: Report) -> None:
        self._block = self._awaited = block
        self._report = report

    @property
    def answer(self) -> Any:
        return self._block.answer

    def __enter__(self) -> Any:
        self._awaited = Awaited(self._block)
        return super().__enter__()

    async def __aenter__(self) -> Any:
        with self._reporting():
            return await self._awaited.__aenter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        with self._reporting() if error is None else nullcontext():
            await self._awaited.__aexit__(kind, error, traceback)

    @context
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            if _is_fault(error):
                self._report("transaction", error)
            raise
