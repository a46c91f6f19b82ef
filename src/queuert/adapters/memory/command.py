"""Commands: what the operations yield. A command is a function over the tables, with a flag for
whether it changes them.

Operations are written as methods over the tables. `read` and `write` turn them into programs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Concatenate, Generic, ParamSpec, TypeVar

from queuert.adapters.memory.tables import Tables
from queuert.ports.program import Program

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")

Operation = Callable[Concatenate[S, Tables, P], T]
ProgramOf = Callable[Concatenate[S, P], Program[T]]


class Command(Generic[T]):
    __slots__ = ("function", "writes")

    def __init__(self, function: Callable[[Tables], T], *, writes: bool) -> None:
        self.function = function
        self.writes = writes


def read(operation: Operation[S, P, T]) -> ProgramOf[S, P, T]:
    """An operation that changes nothing. Outside a transaction it reads what is committed."""
    return _program(operation, writes=False)


def write(operation: Operation[S, P, T]) -> ProgramOf[S, P, T]:
    """An operation that may change something. If it raises, nothing is changed."""
    return _program(operation, writes=True)


def _program(operation: Operation[S, P, T], *, writes: bool) -> ProgramOf[S, P, T]:
    @wraps(operation)
    def program(self: S, /, *args: P.args, **options: P.kwargs) -> Program[T]:
        if args and not args[0]:  # empty arguments need no command: an empty store gives the answer
            return operation(self, Tables(datetime.now(UTC)), *args, **options)

        def run(tables: Tables) -> T:
            if writes:
                tables.counting = getattr(self, "statistics", True)
            return operation(self, tables, *args, **options)

        command: Command[T] = Command(run, writes=writes)
        result: T = yield command
        return result

    return program
