"""`contextmanager` and `asynccontextmanager` for blocks that never swallow an exception.

The types of the standard ones allow a swallowed exception. A type checker then believes that the
code after a `return` inside such a block can be reached. These types are exact: the block ends in
the same way as its body.
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
