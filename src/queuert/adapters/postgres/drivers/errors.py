"""The errors of every driver, as the library's own. The driver's error is always kept as the cause.

PostgreSQL's five-letter SQLSTATE decides. It is the same with every driver.
"""

from __future__ import annotations

import re

from queuert.errors import (
    InvalidArgument,
    QueuertError,
    SchemaMissing,
    StorageBusy,
    StorageError,
    StorageReadOnly,
    StorageRejected,
    StorageUnavailable,
    TransactionMisused,
)

DEADLOCK_OR_SERIALIZATION = ("40001", "40P01")
"""The whole transaction was undone, and may be tried again."""

IN_FAILED_TRANSACTION = "25P02"

ENDED_INSIDE = (
    "the transaction was ended by code inside its block: by COMMIT, ROLLBACK, or closing the connection or session. "
    "What was written before may be committed already, what came later is not. Do not end the transaction yourself, "
    "and use savepoints for what may fail"
)
SWALLOWED = (
    "a statement or a flush failed inside the block and its error was swallowed, so the transaction accepts nothing "
    "more and was rolled back. Put what may fail into a savepoint of its own, and let its error leave that block"
)
FAILED = (
    "a statement has failed in this transaction, so it accepts nothing more: roll it back first, to a savepoint or as "
    "a whole"
)
NOT_BEGUN = (
    "no transaction is open on this connection: begin one inside the after_commit() block, and let only the end of "
    "its own block end it"
)
CLOSED = "this connection is closed, or has gone back to its pool"
LOST_INSIDE = "the connection to the database was lost inside the transaction, which is rolled back"

_UNAVAILABLE = ("08", "53", "57P", "25P03", "25P04")

_CONFLICT = (StorageBusy, "other transactions were in the way, several times in a row: {}")
_MISSING = (SchemaMissing, "{}")
_UNPREPARED = (StorageError, "prepared statements do not work here ({}): behind PgBouncer, use prepare=False")
_REJECTED = (StorageError, "PostgreSQL rejected the connection: {}")
_REFUSED = (StorageRejected, "PostgreSQL refused a value: {}")
_PRIVILEGE = (
    "the role lacks a privilege ({}): run migrate() once as a role that may create tables in the schema, and grant "
    "this one USAGE on the schema, SELECT, INSERT, UPDATE, DELETE on its tables, USAGE on its sequence and EXECUTE on "
    "its functions"
)

_MEANINGS: dict[str, tuple[type[QueuertError], str]] = {
    "53100": (StorageUnavailable, "there is no space left on the disk of PostgreSQL: {}"),
    "53200": (StorageUnavailable, "PostgreSQL has no memory left: {}"),
    "57014": (StorageUnavailable, "PostgreSQL cancelled the statement, by statement_timeout or on request: {}"),
    **dict.fromkeys(DEADLOCK_OR_SERIALIZATION, _CONFLICT),
    "55P03": (StorageBusy, "another transaction has held a lock for too long: {}"),
    IN_FAILED_TRANSACTION: (TransactionMisused, FAILED),
    **dict.fromkeys(("25P01", "3B001"), (TransactionMisused, ENDED_INSIDE)),
    "25006": (StorageReadOnly, "this database cannot be written: {}"),
    **dict.fromkeys(("3F000", "42P01", "42703", "42704", "42883"), _MISSING),
    "42501": (StorageError, _PRIVILEGE),
    **dict.fromkeys(("26000", "42P05"), _UNPREPARED),
    **dict.fromkeys(("28", "3D"), _REJECTED),
    **dict.fromkeys(("22", "54"), _REFUSED),
}
"""What a SQLSTATE means, or its first two letters. `{}` is the server's message."""

_NOT_UNAVAILABLE = re.compile(
    r'(?:database|role) ".*" does not exist|authentication failed|pg_hba\.conf|not permitted to log in|'
    r"no password supplied|permission denied for database|not currently accepting connections|"
    r"(?:unrecognized|invalid) .*\bparameter\b|invalid [\w ]*\bvalue\b|invalid port number"
)
"""The answers of a server that can be reached, and what libpq reports about settings. When a
connection fails, libpq reports no SQLSTATE, only the text. In another language this is not
recognised.
"""


def sqlstate(error: BaseException | None) -> str | None:
    """PostgreSQL's code of a driver's error, or of the driver's error that is the cause of ours."""
    while error is not None:
        state: object = getattr(error, "sqlstate", None)
        if isinstance(state, str):
            return state
        error = error.__cause__
    return None


def is_unavailable(state: str | None) -> bool:
    return state is not None and state.startswith(_UNAVAILABLE)


def unavailable(error: BaseException | str) -> StorageUnavailable:
    return StorageUnavailable(f"PostgreSQL cannot be reached: {_line(error)}")


def silent(seconds: float) -> StorageUnavailable:
    """For a statement that was given up."""
    return StorageUnavailable(
        f"the database did not answer within {seconds:g} s, so the connection was closed; "
        "the statement may have taken effect"
    )


def lost_or_rejected(error: BaseException) -> StorageError:
    """For an error of libpq about a connection, or about one that it cannot open: trying again may
    help, or not."""
    kind, message = _REJECTED
    return kind(message.format(_line(error))) if _NOT_UNAVAILABLE.search(_line(error)) else unavailable(error)


def refused(error: BaseException) -> StorageRejected:
    """For a value that the driver cannot send."""
    kind, message = _REFUSED
    return kind(message.format(_line(error)))


def check_server_encoding(encoding: str | None) -> None:
    """Raise if the database cannot hold every text. None: a pooler does not tell.

    SQL_ASCII stores the bytes as they are, and checks that they are UTF-8, because that is what our
    connections use.
    """
    if encoding not in ("UTF8", "SQL_ASCII", None):
        raise StorageError(
            f"the encoding of this database is {encoding}, which cannot hold every text: create one with "
            "ENCODING 'UTF8' TEMPLATE template0"
        )


def translated(error: BaseException, *, inside: bool, lost: bool) -> BaseException:
    """What to raise for a driver's error.

    It is `error` itself if the owner of the transaction must handle it: a deadlock or serialization
    failure `inside` of one. `lost`: the error is about the connection.
    """
    state = sqlstate(error)
    if inside and state in DEADLOCK_OR_SERIALIZATION:
        return error
    return unavailable(error) if lost and state not in _MEANINGS else translate(error, state)


def reraise(found: BaseException) -> QueuertError:
    """For `raise reraise(translated(error, …)) from error`. Raises `found` at once if it is the
    driver's error, which cannot be its own cause."""
    if isinstance(found, QueuertError):
        return found
    raise found


def translate(error: BaseException, state: str | None) -> QueuertError:
    """The error to raise from the driver's, by its code."""
    said = _line(error)
    if "startup parameter" in said:
        return StorageError(f"PgBouncer rejected the isolation level of our connections ({said}): use prepare=False")
    state = state or ""
    if is_unavailable(state) and state not in _MEANINGS:
        return unavailable(error)
    kind, message = _MEANINGS.get(state) or _MEANINGS.get(state[:2]) or (StorageError, "PostgreSQL: {}")
    return kind(message.format(said))


def wrong_source(source: object, expected: str) -> InvalidArgument:
    return InvalidArgument(f"expected {expected}, got {_name(source)}")


def wrong_connection(connection: object, expected: str) -> TransactionMisused:
    return TransactionMisused(f"expected {expected}, got {_name(connection)}")


def check_database(theirs: str | None, ours: str | None) -> None:
    """A transaction must be about the database that has the jobs, if its name is known."""
    if ours is not None and theirs != ours:
        raise other_database(theirs, ours)


def other_database(theirs: str | None, ours: str | None) -> TransactionMisused:
    return TransactionMisused(
        f"this connection is to the database {theirs!r}, but the jobs live in {ours!r}: a transaction cannot span "
        "two databases"
    )


def _name(given: object) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"


def _line(error: BaseException | str) -> str:
    """The first line of the message, without the context that the server adds to it."""
    first = str(error).strip().partition("\n")[0]
    return first or type(error).__name__
