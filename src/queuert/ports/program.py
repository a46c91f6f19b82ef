"""Programs: operations written once, without I/O, and driven by a sync or an async runner.

A program is a generator. It yields commands (a SQL statement, or whatever its adapter's provider understands),
is sent each command's result, and returns its own. Two commands are known to the runners themselves: `Atomic`, all of
an inner program or nothing of it, and `Pause`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Program: TypeAlias = Generator[Any, Any, T]


class Atomic:
    """Run `program` in a savepoint of the transaction that is open, or else in a transaction of its own."""

    __slots__ = ("program",)

    def __init__(self, program: Program[Any]) -> None:
        self.program = program


class Pause:
    """Wait, holding nothing."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def answered(program: Program[T], answer: Any) -> T:
    """The result of a program whose only command, which it has yielded, was carried out elsewhere."""
    try:
        program.send(answer)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("the program has more than one command")


def atomically(program: Program[T]) -> Program[T]:
    """`program`, all or nothing."""
    result: T = yield Atomic(program)
    return result
