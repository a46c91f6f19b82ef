"""Checks of results. They are ordinary calls, so that they also work under `python -O`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar

import msgspec

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

_SHOWN = 1_000


class CheckFailed(AssertionError):
    """A rule of the contract was broken."""


class Skipped(Exception):
    """A case cannot run with this harness. The message is the reason."""


def skip(reason: str) -> NoReturn:
    """Skip the case that is running.

    Args:
        reason: The reason for the report.
    """
    raise Skipped(reason)


@contextmanager
def sooner_than(seconds: float) -> Generator[None]:
    """What is checked inside is so only for this time. Skip the case if the machine took longer.

    Args:
        seconds: The time, counted from the beginning of the block.
    """
    began = monotonic()
    try:
        yield
    except CheckFailed as error:
        if monotonic() - began >= seconds:
            raise Skipped(f"this machine is too busy: {error}") from error
        raise


def check(condition: object, message: str) -> None:
    """Fail unless a condition is true.

    Args:
        condition: The condition.
        message: The message of the failure.
    """
    if not condition:
        raise CheckFailed(message)


def equal(actual: T, expected: T, what: str) -> None:
    """Fail unless two values are equal.

    Args:
        actual: The value that was found.
        expected: The value that the contract requires.
        what: What the value is, for the message.
    """
    if actual != expected:
        place = _difference(actual, expected)
        raise CheckFailed(f"{what}: expected {_shown(expected, place)}, got {_shown(actual, place)}")


def same_json(actual: bytes | None, expected: bytes | None, what: str) -> None:
    """Fail unless both are None, or both are JSON texts of the same value.

    Storage may change spaces and the order of keys.
    """
    if actual is None or expected is None:
        equal(actual, expected, what)
    else:
        equal(msgspec.json.decode(actual), msgspec.json.decode(expected), what)


def present(value: T | None, what: str) -> T:
    """Return the value. Fail if it is None."""
    if value is None:
        raise CheckFailed(f"{what}: expected one, got None")
    return value


def only(values: list[T], what: str) -> T:
    """Return the only value of a list. Fail if the list does not have exactly one."""
    if len(values) != 1:
        raise CheckFailed(f"{what}: expected exactly one, got {_shown(values)}")
    return values[0]


class raises(Generic[E]):  # noqa: N801 - reads as a statement
    """A block that must raise this error. The error is then in `error`."""

    error: E

    def __init__(self, expected: type[E], what: str) -> None:
        self._expected = expected
        self._what = what

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:
            raise CheckFailed(f"{self._what}: expected {self._expected.__name__}, nothing was raised")
        if not isinstance(error, self._expected):
            return False
        self.error = error
        return True


def _shown(value: object, around: int = 0) -> str:
    """The value as text. If the text is long, only the part around a position."""
    text = repr(value)
    if len(text) <= _SHOWN:
        return text
    begin = max(0, min(around - _SHOWN // 2, len(text) - _SHOWN))
    return f"{'…' if begin else ''}{text[begin : begin + _SHOWN]}… ({len(text)} characters)"


def _difference(one: object, other: object) -> int:
    """The position at which the texts of two values differ."""
    pairs = zip(repr(one), repr(other), strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), 0)
