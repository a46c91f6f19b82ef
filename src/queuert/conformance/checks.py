"""What cases say about results. Ordinary calls, so that they also hold under `python -O`."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar

import msgspec

E = TypeVar("E", bound=BaseException)
T = TypeVar("T")

_SHOWN = 1_000


class CheckFailed(AssertionError):
    """A rule of the contract was broken."""


class Skipped(Exception):
    """A case cannot be run with this harness; the message says why."""


def skip(reason: str) -> NoReturn:
    """Leave a case out of the run, and say why in the report."""
    raise Skipped(reason)


def check(condition: object, message: str) -> None:
    """Fail with `message` unless the condition holds."""
    if not condition:
        raise CheckFailed(message)


def equal(actual: T, expected: T, what: str) -> None:
    """Fail unless both are equal."""
    if actual != expected:
        place = _difference(actual, expected)
        raise CheckFailed(f"{what}: expected {_shown(expected, place)}, got {_shown(actual, place)}")


def same_json(actual: bytes | None, expected: bytes | None, what: str) -> None:
    """Fail unless both are None, or both JSON texts of one value: storage may change spaces and order of keys."""
    if actual is None or expected is None:
        equal(actual, expected, what)
    else:
        equal(msgspec.json.decode(actual), msgspec.json.decode(expected), what)


def present(value: T | None, what: str) -> T:
    """The value, which must not be None."""
    if value is None:
        raise CheckFailed(f"{what}: expected one, got None")
    return value


def only(values: list[T], what: str) -> T:
    """The one value of a list that must have exactly one."""
    if len(values) != 1:
        raise CheckFailed(f"{what}: expected exactly one, got {_shown(values)}")
    return values[0]


class raises(Generic[E]):  # noqa: N801 - reads as a statement
    """A block that must raise this error, which is then there as `error`."""

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
    """The value as text; if that is long, the part around a position."""
    text = repr(value)
    if len(text) <= _SHOWN:
        return text
    begin = max(0, min(around - _SHOWN // 2, len(text) - _SHOWN))
    return f"{'…' if begin else ''}{text[begin : begin + _SHOWN]}… ({len(text)} characters)"


def _difference(one: object, other: object) -> int:
    """Where the texts of two values begin to differ."""
    pairs = zip(repr(one), repr(other), strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), 0)
