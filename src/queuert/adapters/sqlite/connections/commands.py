"""Several statements as one command.

`atomically` would do as well, but an async client would then go to the writer's thread and back for
each statement, for BEGIN and for COMMIT. As one command they go there once: the thread runs the
whole program. That also keeps encoding and decoding the rows of a large batch off the event loop.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from queuert.adapters.sql.statement import Statement
from queuert.ports.program import Program

T = TypeVar("T")


class Statements(Generic[T]):
    """All statements of a program, or none. The program yields nothing but statements."""

    __slots__ = ("program",)
    writes = True

    def __init__(self, program: Program[T]) -> None:
        self.program = program


Command = Statement | Statements[Any]


def together(program: Program[T]) -> Program[T]:
    """`program`, all or nothing, in one command."""
    result: T = yield Statements(program)
    return result
