from __future__ import annotations

from typing import assert_type

from queuert import Attempt, Chain, Client, EntryJob, Handlers, SyncAttempt, SyncClient, Worker
from queuert.sqlalchemy import connect, connect_sync
from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker


class OwnSession(AsyncSession):
    def audit(self) -> None: ...


class Greet(EntryJob[str], name="greet"):
    who: str


handlers = Handlers[AsyncSession]()
plain = Handlers[Session]()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet, AsyncSession]) -> str:
    async with attempt.complete() as tx:
        assert_type(tx.connection, AsyncSession)
        await tx.connection.execute(text("SELECT 1"))
        return attempt.job.who


@plain.handles(Greet)
def greet_in_a_thread(attempt: SyncAttempt[Greet, Session]) -> str:
    with attempt.complete() as tx:
        assert_type(tx.connection, Session)
        return attempt.job.who


async def with_sessions(sessions: async_sessionmaker[AsyncSession]) -> str:
    async with connect(sessions, jobs=[Greet]) as client, Worker(client, [handlers]):
        assert_type(client, Client[AsyncSession])
        async with sessions.begin() as session:
            chain = await client.start(session, Greet(who="you"), dedup="k")
            assert_type(chain, Chain[Greet])
            await client.start_many(session, [Greet(who="you")])
            async with client.savepoint(session):
                await client.cancel(session, chain)
            async with client.take_over(session, chain, Greet) as current:
                await current.settle("hello")
            assert_type(await client.get_chain(chain, tx=session), Chain[Greet] | None)
        async with client.transaction() as tx:
            assert_type(tx.connection, AsyncSession)
        return await client.wait(chain)


async def with_a_session_of_ones_own(sessions: async_sessionmaker[OwnSession]) -> None:
    async with connect(sessions, jobs=[Greet]) as client, client.transaction() as tx:
        tx.connection.audit()


async def with_connections(engine: AsyncEngine, sync: Engine) -> None:
    async with connect(engine, jobs=[Greet], sync=sync, notify=None) as client, engine.begin() as connection:
        assert_type(client, Client[AsyncConnection])
        await client.start(connection, Greet(who="you"))


def without_a_loop(sessions: sessionmaker[Session], engine: Engine) -> None:
    with connect_sync(sessions, jobs=[Greet]) as client, sessions.begin() as session:
        assert_type(client, SyncClient[Session])
        assert_type(client.start(session, Greet(who="you")), Chain[Greet])
    with connect_sync(engine, jobs=[Greet]) as other, engine.begin() as connection:
        assert_type(other, SyncClient[Connection])
        other.start(connection, Greet(who="you"))
