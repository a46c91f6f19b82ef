"""`contextmanager` and `asynccontextmanager` for blocks that never swallow an exception, and that
explain the wrong kind of `with`.

The types of the standard ones allow a swallowed exception. A type checker then believes that the
code after a `return` inside such a block can be reached. These types are exact: the block ends in
the same way as its body.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    _AsyncGeneratorContextManager,  # pyright: ignore[reportPrivateUsage]
    _GeneratorContextManager,  # pyright: ignore[reportPrivateUsage]
)
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from queuert.errors import ClientMisused

P = ParamSpec("P")
T = TypeVar("T")


class OnlyAsync:
    """What can be entered with `async with` only. Type checkers know that."""

    if not TYPE_CHECKING:

        def __enter__(self):
            raise ClientMisused(
                "use `async with` here, not `with`. Code without an event loop needs a client from connect_sync()"
            )

        def __exit__(self, *exc):
            raise NotImplementedError


class OnlySync:
    """What can be entered with `with` only. Type checkers know that."""

    if not TYPE_CHECKING:

        def __aenter__(self):
            raise ClientMisused("use `with` here, not `async with`. Async code needs a client from connect()")

        def __aexit__(self, *exc):
            raise NotImplementedError


class _Block(OnlySync, _GeneratorContextManager[Any]):
    pass


class _AsyncBlock(OnlyAsync, _AsyncGeneratorContextManager[Any]):
    pass


def context(function: Callable[P, Iterator[T]]) -> Callable[P, AbstractContextManager[T, None]]:
    make: Any = _Block

    @wraps(function)
    def block(*args: P.args, **kwargs: P.kwargs) -> Any:
        return make(function, args, kwargs)

    return cast(Any, block)  # type: ignore[no-any-return]


def async_context(
    function: Callable[P, AsyncIterator[T]],
) -> Callable[P, AbstractAsyncContextManager[T, None]]:
    make: Any = _AsyncBlock

    @wraps(function)
    def block(*args: P.args, **kwargs: P.kwargs) -> Any:
        return make(function, args, kwargs)

    return cast(Any, block)  # type: ignore[no-any-return]
