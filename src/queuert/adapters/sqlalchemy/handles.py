"""What users hand in, and the sync session or connection behind it."""

from __future__ import annotations

from typing import Any, TypeAlias

from sqlalchemy import Connection, RootTransaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from queuert.errors import TransactionMisused

Handle: TypeAlias = Session | Connection
"""What everything is done with."""

AsyncHandle: TypeAlias = AsyncSession | AsyncConnection
Root: TypeAlias = SessionTransaction | RootTransaction


def sync_handle(given: Any) -> Handle:
    """For a sync client."""
    found = _of_scope(given, scoped_session)
    if isinstance(found, Session | Connection):
        return found
    if isinstance(found, AsyncSession | AsyncConnection | async_scoped_session):
        raise TransactionMisused(
            f"this is a sync client, and {type(given).__name__} is async: use an async client, made by "
            "queuert.sqlalchemy.connect(), or a sync session"
        )
    raise _unknown(given, "Session or Connection")


def async_handle(given: Any) -> AsyncHandle:
    """For an async client."""
    found = _of_scope(given, async_scoped_session)
    if isinstance(found, AsyncSession):
        return found
    if isinstance(found, AsyncConnection):
        if found.sync_connection is None:
            raise TransactionMisused("this connection is not open: it was closed, or never awaited")
        return found
    if isinstance(found, Session | Connection | scoped_session):
        raise TransactionMisused(
            f"this is an async client, and {type(given).__name__} is sync: use a sync client, made by "
            "queuert.sqlalchemy.connect_sync(), or an async session"
        )
    raise _unknown(given, "AsyncSession or AsyncConnection")


def behind(handle: AsyncHandle) -> Handle:
    """The sync object that an async one drives."""
    if isinstance(handle, AsyncSession):
        return handle.sync_session
    connection = handle.sync_connection
    if connection is None:
        raise TransactionMisused("this connection is closed")
    return connection


def root_of(handle: Handle) -> Root | None:
    """The outermost transaction that is open on it."""
    return handle.get_transaction()


def _of_scope(given: Any, registry: Any) -> Any:
    """The session of the current scope, if it is a registry of them."""
    return given() if isinstance(given, registry) else given


def _unknown(given: object, wanted: str) -> TransactionMisused:
    return TransactionMisused(
        f"expected SQLAlchemy's {wanted}, got {type(given).__module__}.{type(given).__qualname__}"
    )
