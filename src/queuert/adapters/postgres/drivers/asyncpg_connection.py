"""What we say over one asyncpg connection, how it answers, and what its errors mean to us."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import asyncpg
from asyncpg.transaction import Transaction, TransactionState

from queuert.adapters.finishing import finish
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.drivers.asyncpg_sources import Connection, DriverError, own
from queuert.adapters.postgres.drivers.errors import (
    DEADLOCK_OR_SERIALIZATION,
    ENDED_INSIDE,
    NOT_BEGUN,
    SWALLOWED,
    is_unavailable,
    sqlstate,
    translate,
    unavailable,
)
from queuert.errors import QueuertError, StorageUnavailable, TransactionMisused

Rows = list[tuple[Any, ...]]

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"


def is_open(connection: Connection) -> bool:
    """Whether a transaction is open, also a failed one; not, if the connection has been closed or released."""
    try:
        return connection.is_in_transaction()
    except asyncpg.InterfaceError:
        return False


def is_closed(connection: Connection) -> bool:
    try:
        return connection.is_closed()
    except asyncpg.InterfaceError:  # released
        return True


def require_transaction(connection: Connection) -> None:
    """A statement must not be committed by itself where a transaction was meant."""
    if is_closed(connection):
        raise TransactionMisused("this connection is closed, or was lost, or has gone back to its pool")
    if not is_open(connection):
        raise TransactionMisused(NOT_BEGUN)


def require_asyncpg(connection: object) -> None:
    if not isinstance(connection, asyncpg.Connection | asyncpg.pool.PoolConnectionProxy):
        raise TransactionMisused(
            f"expected an asyncpg.Connection, got {type(connection).__module__}.{type(connection).__qualname__}"
        )


def database_of(connection: Connection) -> str | None:
    """asyncpg keeps to itself what it has connected to; None if it no longer says it this way."""
    return getattr(getattr(connection, "_params", None), "database", None)


async def run(connection: Connection, command: PgStatement) -> Rows:
    try:
        rows = await connection.fetch(command.text, *command.values, record_class=asyncpg.Record)
    except DriverError as error:
        raise reraise(error, inside=True) from error
    return [tuple(row) for row in rows]


async def say(connection: Connection, text: str) -> str:
    try:
        return await connection.execute(text)
    except DriverError as error:
        raise reraise(error, inside=True) from error


async def begin(connection: Connection, *more: str) -> tuple[Transaction, str]:
    """BEGIN, and what is to be said in the same message; answers with the tag of the last one.

    asyncpg has to believe that its own object has done this: otherwise it refuses the user's transaction blocks.
    """
    if is_closed(connection):  # it died on the way to us
        raise unavailable("the server has closed the connection")
    begun = connection.transaction(isolation="read_committed")
    words = "; ".join((BEGIN, *more))
    ours = own(connection)
    try:
        answer = await connection.execute(words if ours is None else ours.begin(words))
    except BaseException as error:
        if not isinstance(error, asyncpg.InterfaceError):  # otherwise nothing was said
            await finish(give_up(connection))
        if isinstance(error, DriverError):
            raise reraise(error, inside=True) from error
        raise
    its: Any = begun
    its._state = TransactionState.STARTED
    its._connection._top_xact = begun
    return begun, answer


async def give_up(connection: Connection) -> None:
    """BEGIN has failed, or was cancelled. Whether a transaction is open may not be known yet: the server's answer is
    waited for before anything else is said."""
    if (ours := own(connection)) is not None:
        ours.failed = True  # the reset before BEGIN is undone with it
    with suppress(*DriverError):
        await connection.execute("ROLLBACK")


async def commit(connection: Connection, begun: Transaction, guard: str | None = None) -> None:
    """COMMIT of a transaction that has failed rolls back without a word; only the answer tells. asyncpg drops it."""
    if not is_open(connection):
        lost = is_closed(connection)
        forget(begun)
        if lost:
            raise StorageUnavailable(
                "the connection to PostgreSQL was lost inside the transaction, which is rolled back"
            )
        raise TransactionMisused(ENDED_INSIDE)
    try:
        answer = await connection.execute("COMMIT" if guard is None else f"RELEASE {guard}; COMMIT")
    except DriverError as error:
        if is_lost(error):
            raise unavailable(error) from error
        if is_open(connection):  # it has not come to COMMIT: the guard is gone, or the connection is in use
            await roll_back(connection, begun)
            if sqlstate(error) == "25P02":
                raise TransactionMisused(SWALLOWED) from error
            raise reraise(error, inside=False) from error
        raise  # a deferred constraint of the user's, for one
    finally:
        forget(begun)
    if answer != "COMMIT":
        raise TransactionMisused(SWALLOWED)


async def roll_back(connection: Connection, begun: Transaction) -> bool:
    """False: the transaction was gone already. An error here would only hide the one that led to it."""
    intact = is_open(connection)
    try:
        if intact:
            await connection.execute("ROLLBACK")
    except DriverError:
        return False
    finally:
        forget(begun)
    return intact


def forget(begun: Transaction) -> None:
    """Let asyncpg know that its transaction has ended: it must be us who say COMMIT, for the sake of the answer."""
    transaction: Any = begun
    connection: Any = transaction._connection
    if connection is not None and getattr(connection, "_top_xact", None) is begun:
        connection._top_xact = None


def is_lost(error: BaseException) -> bool:
    """Whether the error is about the connection, not about what was said over it."""
    if isinstance(error, asyncpg.PostgresError):
        return is_unavailable(error.sqlstate)
    # An error inside asyncpg: the server's farewell came between two of its steps, and the connection's end not yet.
    return isinstance(error, OSError | TimeoutError | asyncpg.InternalClientError) or "clos" in str(error)


def reraise(error: BaseException, *, inside: bool) -> QueuertError:
    """The error to raise from a driver's error; raises that itself, if it is for the transaction's owner."""
    if inside and sqlstate(error) in DEADLOCK_OR_SERIALIZATION:
        raise error
    if is_lost(error):
        return unavailable(error)
    if type(error) is asyncpg.InterfaceError:  # in use by another task, or released
        return TransactionMisused(f"the connection cannot be used: {error}")
    return translate(error, sqlstate(error))


def note_if_gone(connection: Connection, error: BaseException, *, intact: bool) -> None:
    """The user's error goes on its way; that it could not be undone is added to it."""
    if not intact and not is_closed(connection):
        error.add_note(f"queuert: this could not be rolled back, {ENDED_INSIDE}")
