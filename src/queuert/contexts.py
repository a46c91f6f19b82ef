"""`contextmanager` and `asynccontextmanager` for blocks that never swallow an exception.

The standard ones are typed as if they might, and then a checker takes a `return` inside such a block for a path that
may fall through. These say what is true: the block ends the way its body ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from typing import Any, ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


def context(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T, None]]:
    return cast(Any, contextmanager(function))  # type: ignore[no-any-return]


def async_context(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T, None]]:
    return cast(Any, asynccontextmanager(function))  # type: ignore[no-any-return]
