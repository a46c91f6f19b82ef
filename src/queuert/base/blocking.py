"""Code that is written once, as coroutines, and runs on event loops and in threads.

On an event loop it is awaited. In a thread, everything that it waits for blocks the thread, so it
never suspends, and `run_blocking` runs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Generic, TypeVar

from queuert.base.contexts import OnlySync

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


def run_blocking(call: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        call.send(None)
    except StopIteration as finished:
        value: T = finished.value
        return value
    call.close()
    raise AssertionError("a coroutine was suspended in a thread without an event loop")


class Block(ABC, Generic[T_co]):
    """An `async with` block that is a `with` block too, if it never suspends."""

    @abstractmethod
    async def __aenter__(self) -> T_co: ...

    @abstractmethod
    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None: ...

    def __enter__(self) -> T_co:
        return run_blocking(self.__aenter__())

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        run_blocking(self.__aexit__(kind, error, traceback))


class Blocking(OnlySync, AbstractContextManager[T_co, None], Generic[T_co]):
    """An `async with` block that never suspends, as a `with` block and nothing else."""

    def __init__(self, block: AbstractAsyncContextManager[T_co, None]) -> None:
        self._block = block

    def __enter__(self) -> T_co:
        return run_blocking(self._block.__aenter__())

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        run_blocking(self._block.__aexit__(kind, error, traceback))


class Awaited(AbstractAsyncContextManager[T_co, None], Generic[T_co]):
    """A block that blocks, for `async with` in code that `run_blocking` runs."""

    def __init__(self, block: AbstractContextManager[T_co, None]) -> None:
        self._block = block

    async def __aenter__(self) -> T_co:
        return self._block.__enter__()

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._block.__exit__(kind, error, traceback)
