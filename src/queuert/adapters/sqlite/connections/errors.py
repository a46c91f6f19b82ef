"""The driver's errors as errors of ours. The driver's own error is always the cause."""

from __future__ import annotations

import sqlite3

from queuert.errors import (
    QueuertError,
    SchemaMissing,
    StorageBusy,
    StorageError,
    StorageNotADatabase,
    StorageReadOnly,
    StorageRejected,
    TransactionMisused,
)

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def primary_code(error: sqlite3.Error) -> int | None:
    """SQLite's result code without its details; None for errors of the Python module itself."""
    code: int | None = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return primary_code(error) in _BUSY


def is_bad_text(error: sqlite3.Error) -> bool:
    """Whether a row had text that is not UTF-8. The Python module finds that, not SQLite."""
    return primary_code(error) is None and "decode to UTF-8" in str(error)


def translate(error: sqlite3.Error, path: str) -> QueuertError:
    """The error to raise from the driver's."""
    code = primary_code(error)
    if is_bad_text(error):
        return StorageError(f"a row of {path} has text that is not UTF-8, was it written by hand? {error}")
    if code is None:
        return TransactionMisused(f"the SQLite connection cannot be used: {error}")
    if code in _BUSY:
        return StorageBusy(f"another connection holds the write lock of {path}: {error}")
    if code == sqlite3.SQLITE_READONLY:
        return StorageReadOnly(f"{path} cannot be written: {error}")
    if code == sqlite3.SQLITE_NOTADB:
        return StorageNotADatabase(f"{path} is not a SQLite database: {error}")
    if code == sqlite3.SQLITE_TOOBIG:
        return StorageRejected(f"SQLite refused a value: {error}")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StorageError(f"{path} cannot be opened: {error}")
    if code == sqlite3.SQLITE_FULL:
        return StorageError(f"there is no space left for {path}: {error}")
    if code == sqlite3.SQLITE_CORRUPT:
        return StorageError(f"{path} is damaged: {error}")
    if code == sqlite3.SQLITE_ERROR and "no such table" in str(error):
        return SchemaMissing(f"{path}: {error}")
    return StorageError(f"{path}: {error}")
