"""The user's own functions that are called after a commit or a rollback."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from queuert.base.transaction import Callback
from queuert.errors import InvalidArgument

Step = Callable[[], Awaitable[None] | None]


class UserCallback:
    """A hook of one step, the user's own. If it fails, the others still run."""

    # Runs last: a slow callback does not keep workers waiting.
    order = 2

    def __init__(self, method: str, callback: Callback, *, blocking: bool) -> None:
        if not callable(callback):
            raise InvalidArgument(f"{method}() takes a function without arguments, got {callback!r}")
        if blocking and _is_async(callback):
            raise InvalidArgument(
                f"{method}() got the coroutine function {_name_of(callback)}, and this is a transaction of a sync "
                "client or of a plain `def` handler, which cannot await it: pass a plain function"
            )
        self.name = _name_of(callback)
        self._callback: Any = callback
        self._blocking = blocking

    def checkpoint(self) -> Callable[[], None]:
        return _nothing

    def steps(self) -> Iterator[Step]:
        yield partial(_in_thread, self._callback) if self._blocking else self._callback


def _name_of(callback: Callback) -> str:
    while isinstance(callback, partial):
        callback = callback.func
    return str(getattr(callback, "__qualname__", None) or type(callback).__qualname__)


def _is_async(callback: Any) -> bool:
    return inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None))  # noqa: B004


def _in_thread(callback: Callback) -> None:
    """Call it where nothing can be awaited."""
    result = callback()
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise InvalidArgument(
            f"the callback {_name_of(callback)} returned {type(result).__name__}, which a sync client cannot await: "
            "pass a plain function"
        )


def _nothing() -> None:
    pass
