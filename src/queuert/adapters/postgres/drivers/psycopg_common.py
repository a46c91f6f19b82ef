"""What the async and the sync psycopg provider share: all that needs no waiting."""

from __future__ import annotations

import itertools
import select
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
from psycopg import IsolationLevel, postgres
from psycopg.adapt import AdaptersMap
from psycopg.pq import ConnStatus, PGnotify, TransactionStatus
from psycopg.rows import tuple_row
from psycopg.types.array import register_all_arrays
from psycopg.types.numeric import Int8Dumper

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers import errors as translating
from queuert.adapters.postgres.drivers.errors import (
    DEADLOCK_OR_SERIALIZATION,
    ENDED_INSIDE,
    FAILED,
    NOT_BEGUN,
    SWALLOWED,
    translate,
)
from queuert.errors import (
    ClientClosed,
    InvalidArgument,
    QueuertError,
    StorageUnavailable,
    TransactionMisused,
    TransactionNested,
)

AnyConnection = psycopg.AsyncConnection[Any] | psycopg.Connection[Any]
Rows = list[tuple[Any, ...]]

IDLE = TransactionStatus.IDLE
INERROR = TransactionStatus.INERROR
UNKNOWN = TransactionStatus.UNKNOWN

READ_COMMITTED = IsolationLevel.READ_COMMITTED
SHOW_ISOLATION = "SHOW default_transaction_isolation"
SET_ISOLATION = "SET default_transaction_isolation TO 'read committed'"

Settings = tuple[bool, IsolationLevel | None]
"""Autocommit and isolation level of a connection."""

ATTEMPTS = 5
"""How often a statement that stands alone is tried, when deadlocks or serialization failures undo it."""

RECONNECT = 3.0
"""Seconds after which our pool stops trying for a connection; the next request makes it try anew, at once."""

PATIENCE = 2.0
"""Seconds to wait for a connection of our pool before looking whether the server can be reached at all."""

savepoint_names = (f"queuert_{number}" for number in itertools.count(1))

_adapters = AdaptersMap(types=postgres.types)
"""psycopg's own, untouched by what the user has registered for the connection or for all of them."""
postgres.register_default_adapters(_adapters)
register_all_arrays(_adapters)
_adapters.register_dumper(int, Int8Dumper)  # else each size of number would make another prepared statement


class OwnAsyncCursor(psycopg.AsyncRawCursor[tuple[Any, ...]]):
    """Sends `$1` as it stands and answers tuples of plain values, however the user has set up the connection."""

    __slots__ = ()

    def __init__(self, connection: psycopg.AsyncConnection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return _adapters


class OwnCursor(psycopg.RawCursor[tuple[Any, ...]]):
    """`OwnAsyncCursor`, blocking."""

    __slots__ = ()

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return _adapters


def query(text: Any) -> LiteralString:
    """psycopg wants to see by its type that nobody has glued a query together; ours come from files."""
    literal: LiteralString = text
    return literal


async def run_async(connection: psycopg.AsyncConnection[Any], command: PgStatement, *, prepare: bool | None) -> Rows:
    """Carry out a statement. `prepare`: as psycopg takes it; None leaves it to how the connection was set up."""
    cursor = OwnAsyncCursor(connection)
    try:
        await cursor.execute(query(command.text), command.values or None, prepare=prepare, binary=True)
        return await cursor.fetchall() if cursor.description is not None else []
    except psycopg.Error as error:
        raise reraise(error, inside=True) from error


def run(connection: psycopg.Connection[Any], command: PgStatement, *, prepare: bool | None) -> Rows:
    """`run_async`, blocking."""
    cursor = OwnCursor(connection)
    try:
        cursor.execute(query(command.text), command.values or None, prepare=prepare, binary=True)
        return cursor.fetchall() if cursor.description is not None else []
    except psycopg.Error as error:
        raise reraise(error, inside=True) from error


def status_of(connection: AnyConnection) -> TransactionStatus:
    return connection.info.transaction_status


def is_open(connection: AnyConnection) -> bool:
    """Whether a transaction is open, also a failed one; not, if the connection has been closed."""
    return status_of(connection) not in (IDLE, UNKNOWN)


def is_dead(connection: AnyConnection) -> bool:
    """Whether the server has hung up on a connection that rested. Asks the socket, not the server."""
    if connection.closed:
        return True
    pgconn = connection.pgconn
    for _ in range(3):  # the server's last words, then the end
        if not _is_readable(pgconn.socket):
            return False
        try:
            pgconn.consume_input()
        except psycopg.OperationalError:
            return True
    return pgconn.status != ConnStatus.OK


def read_messages(connection: AnyConnection) -> Iterator[PGnotify]:
    """What has come from the server for those who listen. Asks the socket, does not wait."""
    connection.pgconn.consume_input()
    while message := connection.pgconn.notifies():
        yield message


def send_ping(connection: AnyConnection) -> None:
    """Ask the server for a sign of life. `has_answered` tells, after its words were read."""
    connection.pgconn.send_query(b"SELECT 1")
    connection.pgconn.flush()


def has_answered(connection: AnyConnection) -> bool:
    pgconn = connection.pgconn
    while not pgconn.is_busy():
        if pgconn.get_result() is None:
            return True
    return False


def _is_readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def require_transaction(connection: AnyConnection) -> None:
    """A statement must not be committed by itself where a transaction was meant.

    Without autocommit psycopg begins one for the first statement, and the user ends it.
    """
    status = status_of(connection)
    if status == UNKNOWN:
        raise TransactionMisused("this connection is closed, or was lost")
    if status == INERROR:
        raise TransactionMisused(FAILED)
    if status == IDLE and connection.autocommit:
        raise TransactionMisused(NOT_BEGUN)


def check_joined(connection: object, kind: type[AnyConnection], database: str | None) -> None:
    """Refuse a connection of the user's that cannot take part."""
    if isinstance(connection, kind):
        require_transaction(connection)  # pyright: ignore[reportUnknownArgumentType]
    else:
        raise TransactionMisused(
            f"expected a psycopg.{kind.__name__}, got {type(connection).__module__}.{type(connection).__qualname__}"
        )
    if database is not None and connection.info.dbname != database:
        raise TransactionMisused(
            f"this connection is to the database {connection.info.dbname!r}, but the jobs live in {database!r}: "
            "a transaction is about one database"
        )


def check_before_commit(connection: AnyConnection) -> None:
    """COMMIT of a transaction that has failed rolls back without a word; of one that has ended, it does nothing."""
    status = status_of(connection)
    if status == INERROR:
        raise TransactionMisused(SWALLOWED)
    if status == UNKNOWN and connection.broken:
        raise StorageUnavailable("the connection to PostgreSQL was lost inside the transaction, which is rolled back")
    if status in (IDLE, UNKNOWN):
        raise TransactionMisused(ENDED_INSIDE)


def is_lost(error: psycopg.Error) -> bool:
    """Whether the error is about the connection, not about what was said over it."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return translating.is_unavailable(error.sqlstate)


def translated(error: psycopg.Error, *, inside: bool) -> BaseException:
    """What to raise for a driver's error. `inside` a transaction, a conflict is its owner's to deal with."""
    if inside and error.sqlstate in DEADLOCK_OR_SERIALIZATION:
        return error
    if is_lost(error):
        return translating.unavailable(error)
    return translate(error, error.sqlstate)


def reraise(error: psycopg.Error, *, inside: bool) -> QueuertError:
    """The error to raise from a driver's error; raises that itself, if nothing is to be said about it."""
    found = translated(error, inside=inside)
    if isinstance(found, QueuertError):
        return found
    raise error


def closed() -> ClientClosed:
    return ClientClosed("PostgreSQL provider")


def nested(who: str) -> TransactionNested:
    return TransactionNested(
        f"this {who} has a transaction open on the only connection and would wait for itself: "
        "use the transaction that is open, or give the provider a pool"
    )


def not_idle(connection: AnyConnection) -> QueuertError:
    """Why the only connection there is cannot be used."""
    if is_open(connection):
        return TransactionMisused(
            "the only connection that the provider has is inside a transaction of yours: join it with "
            "after_commit(connection) and pass tx on, or give the provider a pool"
        )
    return translating.unavailable("the connection that was given is closed")


def refuse_source(source: object, pool: str, connection: str) -> InvalidArgument:
    return InvalidArgument(
        f"expected a connection string, a psycopg_pool.{pool} or a psycopg.{connection}, "
        f"got {type(source).__module__}.{type(source).__qualname__}"
    )


def note_if_gone(connection: AnyConnection, error: BaseException, *, intact: bool) -> None:
    """The user's error goes on its way; that it could not be undone is added to it."""
    if not intact and not connection.broken:
        error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")
