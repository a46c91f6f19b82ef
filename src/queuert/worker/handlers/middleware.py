"""Middleware: code around every attempt of a registry's handlers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any, Generic, cast

from typing_extensions import TypeVar

from queuert.base.contexts import async_context
from queuert.base.transaction import Transaction
from queuert.errors import InvalidArgument

if TYPE_CHECKING:
    from queuert.worker.handlers.attempt import BaseAttempt

T = TypeVar("T")


class Key(Generic[T]):
    """A typed key for a value that middleware gives to handlers.

        USER = Key[User]("user")
        attempt.values[USER] = user     # in middleware
        attempt.values[USER]            # in a handler, typed

    Args:
        name: A name for error messages. Two keys with the same name are different keys.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"Key({self._name!r})"


class Values:
    """The values that middleware has set for one attempt, by `Key`."""

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Key[Any], Any] = {}

    def __getitem__(self, key: Key[T]) -> T:
        try:
            return cast(T, self._by_key[key])
        except KeyError:
            raise KeyError(f"no middleware has set {key!r} for this attempt") from None

    def __setitem__(self, key: Key[T], value: T) -> None:
        self._by_key[key] = value

    def __contains__(self, key: object) -> bool:
        return key in self._by_key


class Middleware:
    """Code around every attempt of a registry's handlers: subclass it and override what you need.

    The first middleware of a registry is the outermost. All methods run in the handler's own task;
    for a plain `def` handler, they run on the worker's event loop.
    """

    # Subclasses use the arguments.
    # ruff: noqa: ARG002

    async def wrap_handler(self, attempt: BaseAttempt[Any, Any], call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Runs around the whole handler. Return what `call_next()` returns.

        Args:
            attempt: The attempt that the handler is given.
            call_next: Calls the next middleware, and at last the handler.
        """
        return await call_next()

    def wrap_prepare(self, attempt: BaseAttempt[Any, Any], tx: Transaction[Any]) -> AbstractAsyncContextManager[Any]:
        """Runs around the body of `prepare()`, in its transaction.

        Args:
            attempt: The attempt that the handler is given.
            tx: The transaction.
        """
        return _nothing()

    def wrap_complete(self, attempt: BaseAttempt[Any, Any], tx: Transaction[Any]) -> AbstractAsyncContextManager[Any]:
        """Runs around the body of `complete()`, in its transaction.

        Args:
            attempt: The attempt that the handler is given.
            tx: The transaction.
        """
        return _nothing()


@async_context
async def _nothing() -> AsyncIterator[None]:
    yield


class MiddlewareStack:
    """The middleware of one registry, with only the layers that override something."""

    def __init__(self, middleware: Sequence[Middleware]) -> None:
        for each in middleware:
            if not isinstance(each, Middleware):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise InvalidArgument(f"middleware takes instances of Middleware subclasses, got {each!r}")
        self.all = tuple(middleware)
        self._handler = _overriding(middleware, "wrap_handler")
        self._phases = {
            "prepare": _overriding(middleware, "wrap_prepare"),
            "complete": _overriding(middleware, "wrap_complete"),
        }

    async def call(self, attempt: BaseAttempt[Any, Any], innermost: Callable[[], Awaitable[Any]]) -> Any:
        call_next = innermost
        for layer in reversed(self._handler):
            call_next = _layer(layer, attempt, call_next)
        return await call_next()

    @async_context
    async def phase(self, name: str, attempt: BaseAttempt[Any, Any], tx: Transaction[Any]) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for layer in self._phases[name]:
                await stack.enter_async_context(getattr(layer, f"wrap_{name}")(attempt, tx))
            yield

    def wraps(self, name: str) -> bool:
        return bool(self._phases[name])


def _layer(
    layer: Middleware, attempt: BaseAttempt[Any, Any], call_next: Callable[[], Awaitable[Any]]
) -> Callable[[], Awaitable[Any]]:
    return lambda: layer.wrap_handler(attempt, call_next)


def _overriding(middleware: Sequence[Middleware], method: str) -> tuple[Middleware, ...]:
    return tuple(each for each in middleware if getattr(type(each), method) is not getattr(Middleware, method))


def lacking(required: Sequence[Middleware], present: Sequence[Middleware]) -> list[str]:
    """The names of the required middleware that is not present in its order, by identity.

    Others may be between them.
    """
    missing: list[str] = []
    position = 0
    for wanted in required:
        found = next((place for place in range(position, len(present)) if present[place] is wanted), None)
        if found is None:
            missing.append(type(wanted).__name__)
        else:
            position = found + 1
    return missing
