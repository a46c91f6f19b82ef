"""Programs: operations written once, without I/O. A sync or an async runner runs them.

A program is a generator. It yields commands (a SQL statement, or another command that its adapter's
provider understands), receives each command's result, and returns its own result. The runners
handle two commands themselves: `Atomic`, all or nothing of an inner program, and `Pause`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Program: TypeAlias = Generator[Any, Any, T]


class Atomic:
    """Run `program` in a savepoint of the open transaction.

    Without one, run it in a new transaction.
    """

    __slots__ = ("program",)

    def __init__(self, program: Program[Any]) -> None:
        self.program = program


class Pause:
    """Wait, without a connection or a lock."""

    __slots__ = ("seconds",)

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds


def answered(program: Program[T], answer: Any) -> T:
    """The result of a program whose only command, already yielded, was run elsewhere."""
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
