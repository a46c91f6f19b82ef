"""Units of work: several statements that are one command.

`atomically` would do, but costs an async client a trip to the writer's thread and back for every statement, for BEGIN
and for COMMIT. A unit makes the trip once: the thread drives the program itself. It also keeps the work of making
and reading the parameters of ten thousand jobs off the event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from queuert.adapters.sqlite import session
from queuert.adapters.sqlite.connecting import Database
from queuert.ports.program import Program

T = TypeVar("T")


class Unit(Generic[T]):
    """All of a program's statements, or none. The program yields nothing but statements."""

    __slots__ = ("program",)
    writes = True

    def __init__(self, program: Program[T]) -> None:
        self.program = program


def as_unit(program: Program[T]) -> Program[T]:
    """`program`, all or nothing, in one command."""
    result: T = yield Unit(program)
    return result


def run_alone(connection: sqlite3.Connection, unit: Unit[Any], database: Database, given_up: Callable[[], bool]) -> Any:
    """In a transaction of its own, which is not committed if nobody wants the result any more."""
    session.begin(connection, database.path)
    try:
        result = _drive(connection, unit.program, database.path)
    except BaseException:
        session.roll_back(connection)
        raise
    if given_up():
        session.roll_back(connection)
    else:
        database.commit(connection)
    return result


def run_inside(connection: sqlite3.Connection, unit: Unit[Any], path: str) -> Any:
    """In a savepoint of the transaction that is open."""
    with session.Savepoint(connection, path):
        return _drive(connection, unit.program, path)


def _drive(connection: sqlite3.Connection, program: Program[Any], path: str) -> Any:
    try:
        statement = next(program)
        while True:
            try:
                rows = session.execute(connection, statement, path)
            except Exception as error:  # goes into the program, where it stands
                statement = program.throw(error)
            else:
                statement = program.send(rows)
    except StopIteration as done:
        return done.value
