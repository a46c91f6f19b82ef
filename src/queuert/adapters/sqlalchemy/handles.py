"""What users pass in, the sync session or connection behind it, and why it may be unusable."""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from sqlalchemy import URL, Connection, Engine, RootTransaction
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from queuert.adapters.postgres.drivers import errors
from queuert.errors import TransactionMisused

NOT_BEGUN = (
    "no transaction is open on this {}: it was closed, or has committed, or has not begun yet. Nothing would commit "
    "what is started in it. Do it inside of `with {}.begin():`, or write rows of yours first"
)

Handle: TypeAlias = Session | Connection
"""What the driver works on."""

AsyncHandle: TypeAlias = AsyncSession | AsyncConnection
Root: TypeAlias = SessionTransaction | RootTransaction

_SYNC = (Session, Connection, scoped_session)
_ASYNC = (AsyncSession, AsyncConnection, async_scoped_session)


def resolve(given: Any, *, is_async: bool) -> Handle | AsyncHandle:
    """What was given to a client. For a registry of sessions, the session of the current scope."""
    name = type(given).__name__
    if isinstance(given, _ASYNC if is_async else _SYNC):
        if isinstance(given, scoped_session | async_scoped_session):
            return cast("Handle | AsyncHandle", cast(Any, given)())
        if isinstance(given, AsyncConnection) and given.sync_connection is None:
            raise TransactionMisused("this connection is not open: it was closed, or never awaited")
        return given
    if isinstance(given, _SYNC):
        raise TransactionMisused(
            f"this is an async client, and {name} is sync: use a sync client, made by "
            "queuert.sqlalchemy.connect_sync(), or an async session"
        )
    if isinstance(given, _ASYNC):
        raise TransactionMisused(
            f"this is a sync client, and {name} is async: use an async client, made by "
            "queuert.sqlalchemy.connect(), or a sync session"
        )
    expected = "AsyncSession or AsyncConnection" if is_async else "Session or Connection"
    raise errors.wrong_connection(given, f"SQLAlchemy's {expected}")


def behind(handle: Handle | AsyncHandle) -> Handle:
    """The sync object that an async one drives."""
    if isinstance(handle, AsyncSession):
        return handle.sync_session
    if not isinstance(handle, AsyncConnection):
        return handle
    if handle.sync_connection is None:
        raise TransactionMisused("this connection is closed")
    return handle.sync_connection


def root_of(handle: Handle) -> Root | None:
    """The outermost transaction that is open on it."""
    return handle.get_transaction()


def problem_of(handle: Handle) -> str | None:
    """Why a session or connection of the user's cannot be joined. No I/O."""
    if isinstance(handle, Connection):
        if handle.closed:
            return "this connection is closed"
        if handle.invalidated:
            return "this connection was lost"
        return None if handle.in_transaction() else NOT_BEGUN.format("connection", "engine")
    if not handle.in_transaction():
        return NOT_BEGUN.format("session", "session")
    if not handle.is_active:
        return "a flush has failed in this session's transaction, so it accepts nothing more: roll it back first"
    return None


def check_database(theirs: URL, ours: URL) -> None:
    """The user's engine may be another one than ours, if it is for the same database."""
    errors.check_database(theirs.get_backend_name(), ours.get_backend_name())
    if ours.get_backend_name() == "postgresql" and _place(ours) != _place(theirs):
        raise errors.other_database(theirs.database, ours.database)


def is_same_database(theirs: Engine, ours: Engine) -> bool:
    if theirs.pool is ours.pool:
        return True
    try:
        check_database(theirs.url, ours.url)
    except TransactionMisused:
        return False
    return theirs.url.database == ours.url.database


def _place(url: URL) -> tuple[Any, ...]:
    return url.host, url.port or 5432, url.database, url.query.get("host")
