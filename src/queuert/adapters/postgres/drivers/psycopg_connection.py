"""psycopg 3: how we send statements over its connections, and what its errors and states mean.

psycopg has each of its classes twice, async and sync, with the same methods. `await done(…)` takes
the result of either.
"""

from __future__ import annotations

import os
import socket
from typing import Any, LiteralString

import psycopg
from psycopg import postgres
from psycopg.adapt import AdaptersMap
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.array import register_all_arrays
from psycopg.types.numeric import Int8Dumper

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers import errors
from queuert.adapters.postgres.drivers.driver import Status
from queuert.adapters.postgres.drivers.errors import is_unavailable, reraise
from queuert.adapters.waiting import done

AnyConnection = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]

READ_COMMITTED_BY_DEFAULT = "SET default_transaction_isolation TO 'read committed'"
RESET = ("UNLISTEN *", "RESET ALL", READ_COMMITTED_BY_DEFAULT)
"""Restores the session settings of a connection of our own."""


class OwnConnection(psycopg.Connection[Any]):
    """A connection of our own pool, which notices that user code sends statements with it.

    Session settings that a user leaves behind must reach neither our own statements nor the next
    user. A reset is delayed: it is sent together with the next BEGIN, or before a statement of our
    own. Our own statements have cursors that are not made here.
    """

    used = False

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        self.used = True
        return super().cursor(*arguments, **options)


class OwnAsyncConnection(psycopg.AsyncConnection[Any]):
    """The same."""

    used = False

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        self.used = True
        return super().cursor(*arguments, **options)


def is_used(connection: AnyConnection) -> bool:
    """Whether it must be reset first."""
    return isinstance(connection, OwnConnection | OwnAsyncConnection) and connection.used


async def reset(connection: Any) -> None:
    await send(connection, "; ".join(RESET))
    connection.used = False


Rows = list[tuple[Any, ...]]

_adapters = AdaptersMap(types=postgres.types)
"""psycopg's own, whatever the user has registered for one connection or for all."""
postgres.register_default_adapters(_adapters)
register_all_arrays(_adapters)
_adapters.register_dumper(int, Int8Dumper)  # else each size of number would make another prepared statement

_UTF8 = (b"UTF8", b"utf8", b"UTF-8", b"utf-8", b"UNICODE", None)
USE_UTF8 = "SET client_encoding TO 'UTF8'"

_STATUS = {
    TransactionStatus.ACTIVE: Status.OPEN,
    TransactionStatus.INTRANS: Status.OPEN,
    TransactionStatus.INERROR: Status.FAILED,
}


class _OwnAdapters:
    __slots__ = ()

    @property
    def adapters(self) -> AdaptersMap:
        return _adapters


class OwnAsyncCursor(_OwnAdapters, psycopg.AsyncRawCursor[tuple[Any, ...]]):
    __slots__ = ()


class OwnCursor(_OwnAdapters, psycopg.RawCursor[tuple[Any, ...]]):
    __slots__ = ()


def cursor_on(connection: AnyConnection) -> OwnAsyncCursor | OwnCursor:
    """A cursor that sends `$1` as it is and returns tuples of plain values, however the user has
    set up the connection."""
    if isinstance(connection, psycopg.Connection):
        return OwnCursor(connection, row_factory=tuple_row)
    return OwnAsyncCursor(connection, row_factory=tuple_row)


def query(text: Any) -> LiteralString:
    """psycopg accepts only literal strings, against SQL injection. Our queries come from files."""
    literal: LiteralString = text
    return literal


def is_utf8(connection: AnyConnection) -> bool:
    """Whether text is sent as UTF-8, so that all of it can be sent. A setting of the role, the
    database or the connection may say otherwise. Raises if the database cannot hold it."""
    known = connection.pgconn.parameter_status
    server = known(b"server_encoding")
    if server != b"UTF8":
        errors.check_server_encoding(None if server is None else server.decode())
    return known(b"client_encoding") in _UTF8


async def run(connection: AnyConnection, command: PgStatement, *, prepare: bool | None) -> Rows:
    """Run a statement. `prepare` is psycopg's: None leaves it to the settings of the connection."""
    cursor = cursor_on(connection)
    try:
        if not is_utf8(connection):
            await done(connection.execute(USE_UTF8))
        await done(cursor.execute(query(command.text), command.values or None, prepare=prepare, binary=True))
        return await done(cursor.fetchall()) if cursor.description is not None else []
    except psycopg.Error as error:
        raise reraise(translated(error, inside=True)) from error


async def send(connection: AnyConnection, words: str) -> OwnAsyncCursor | OwnCursor:
    """Send SQL without values, several statements perhaps, as one message."""
    try:
        return await send_plainly(connection, words)
    except psycopg.Error as error:
        raise reraise(translated(error, inside=True)) from error


async def send_plainly(connection: AnyConnection, words: str) -> OwnAsyncCursor | OwnCursor:
    """`send`, with psycopg's own errors."""
    cursor = cursor_on(connection)
    await done(cursor.execute(query(words), prepare=False))
    return cursor


def status_of(connection: AnyConnection) -> Status:
    status = connection.info.transaction_status
    if status == TransactionStatus.IDLE:
        return Status.IDLE if connection.autocommit else Status.IMPLICIT
    if status == TransactionStatus.UNKNOWN:
        return Status.LOST if connection.broken else Status.CLOSED
    return _STATUS[status]


def abandon(connection: AnyConnection) -> bool:
    """Shut the socket down, without a message to the server. A statement that waits for an answer
    fails at once, in its task or thread, which then closes the connection.

    psycopg's own way would be to cancel the statement first: that takes ten seconds if the server
    is silent. Not `finish()`: that would close the socket under a thread that waits on it, and its
    number could soon be that of another connection.
    """
    try:
        with socket.socket(fileno=os.dup(connection.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)
    except (psycopg.Error, OSError):
        return connection.closed
    return True


def is_lost(error: BaseException) -> bool:
    """Whether the error is about the connection, and not about what was sent over it."""
    state = getattr(error, "sqlstate", None)
    return isinstance(error, psycopg.OperationalError) if state is None else is_unavailable(state)


def translated(error: psycopg.Error, *, inside: bool) -> BaseException:
    if isinstance(error, psycopg.DataError) and error.sqlstate is None:  # psycopg cannot send the value
        return errors.refused(error)
    if isinstance(error, psycopg.OperationalError) and error.sqlstate is None:
        return errors.lost_or_rejected(error)
    return errors.translated(error, inside=inside, lost=is_lost(error))
