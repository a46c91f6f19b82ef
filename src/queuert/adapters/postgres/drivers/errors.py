"""The drivers' errors, said in our words. The driver's own error always stays as the cause.

PostgreSQL's five-letter SQLSTATE decides; it is the same with every driver.
"""

from __future__ import annotations

from queuert.errors import (
    QueuertError,
    SchemaMissing,
    StorageBusy,
    StorageError,
    StorageReadOnly,
    StorageUnavailable,
    TransactionMisused,
)

DEADLOCK_OR_SERIALIZATION = ("40001", "40P01")
"""The transaction was undone as a whole, and may be tried again."""

ENDED_INSIDE = (
    "the transaction was ended by code inside its block, by COMMIT, ROLLBACK or closing the connection. What was "
    "written before may be committed already, what came later is not; leave the transaction alone, and use "
    "savepoints for what may fail"
)
SWALLOWED = (
    "a statement failed inside the block and its error was swallowed, so PostgreSQL takes nothing more in this "
    "transaction; it was rolled back. Put what may fail into a savepoint of its own, and let its error leave that block"
)
FAILED = (
    "a statement has failed in this transaction, so PostgreSQL takes nothing more in it: roll it back first, to a "
    "savepoint or as a whole"
)
NOT_BEGUN = (
    "no transaction is open on this connection: begin one inside the after_commit() block, and let nothing but the end "
    "of its own block end it"
)

_MISSING = ("3F000", "42P01", "42703", "42704", "42883")
_NO_LOGIN = ("28", "3D")
_UNAVAILABLE = ("08", "53", "57P", "25P03", "25P04")
_PREPARED = ("26000", "42P05")


def sqlstate(error: BaseException | None) -> str | None:
    """PostgreSQL's code of a driver's error, or of the one that this error of ours stands for."""
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


def translate(error: BaseException, state: str | None) -> QueuertError:
    """The error to raise from the driver's, by its code."""
    said = _line(error)
    if "startup parameter" in said:
        return StorageError(f"PgBouncer does not let us set the isolation level ({said}): use prepare=False")
    if state is None:
        return StorageError(f"PostgreSQL: {said}")
    if is_unavailable(state):
        return unavailable(error)
    if state == "57014":
        return StorageUnavailable(f"PostgreSQL cancelled the statement, by statement_timeout or on request: {said}")
    if state in DEADLOCK_OR_SERIALIZATION:
        return StorageBusy(f"others kept getting in the way, several times over: {said}")
    if state == "55P03":
        return StorageBusy(f"another transaction holds a lock for too long: {said}")
    if state == "25P02":
        return TransactionMisused(FAILED)
    if state in ("25P01", "3B001"):
        return TransactionMisused(ENDED_INSIDE)
    if state == "25006":
        return StorageReadOnly(f"this database cannot be written: {said}")
    if state in _MISSING:
        return SchemaMissing(said)
    if state == "42501":
        return StorageError(
            f"the role may not do this ({said}): run migrate() once as a role that may create tables in the schema, "
            "and grant this one USAGE on the schema, SELECT, INSERT, UPDATE, DELETE on its tables and USAGE on its "
            "sequence"
        )
    if state in _PREPARED:
        return StorageError(f"prepared statements do not work here ({said}): behind PgBouncer, use prepare=False")
    if state.startswith(_NO_LOGIN):
        return StorageError(f"PostgreSQL does not let us in: {said}")
    return StorageError(f"PostgreSQL: {said}")


def _line(error: BaseException | str) -> str:
    """The message in one line, without the context that the server adds to it."""
    first = str(error).strip().partition("\n")[0]
    return first or type(error).__name__
