from __future__ import annotations

from queuert import Attempt, Client, SyncClient, Worker
from queuert.sqlalchemy import connect, connect_sync
from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession
from sqlalchemy.orm import Session
from sqlalchemy_ok import Greet, handlers


@handlers.handles(Greet)  # E: another kind of transaction than the registry's
async def other_kind(attempt: Attempt[Greet, AsyncConnection]) -> str:
    return attempt.job.who


async def wrong_handles(client: Client[AsyncSession], session: Session, connection: AsyncConnection) -> None:
    await client.start(session, Greet(who="you"))  # E: a sync session in an async client
    await client.start(connection, Greet(who="you"))  # E: a connection where sessions are used
    await client.start(None, Greet(who="you"))  # E: no transaction
    await client.get_chain("id", tx=session)  # E: a sync session for reading
    async with client.transaction() as tx:
        tx.connection.no_such_method()  # E: not a method of a session


def wrong_sync_handles(client: SyncClient[Session], session: AsyncSession) -> None:
    client.start(session, Greet(who="you"))  # E: an async session in a sync client


def wrong_sources(engine: Engine, async_engine: AsyncEngine) -> None:
    connect(engine, jobs=[Greet])  # E: a sync engine for an async client
    connect_sync(async_engine, jobs=[Greet])  # E: an async engine for a sync client
    connect(async_engine, jobs=[Greet], no_such_option=1)  # E: no such option


async def wrong_worker(client: Client[AsyncConnection]) -> None:
    async with Worker(client, [handlers]):  # E: handlers for sessions, a client with connections
        pass
