"""Transactions that begin with a command: they notice that code inside has ended or broken them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import async_sessionmaker
from sqlalchemy.orm import sessionmaker
from tests.adapters.sqlalchemy.worlds import async_engine_for, engine_for

from queuert import TransactionMisused
from queuert.adapters.postgres.command import PgStatement
from queuert.sqlalchemy import connect, connect_sync

FIRST = PgStatement("SELECT 7")
INSERT = PgStatement("INSERT INTO t VALUES ($1::int)", (1,))


class Awaited:
    """A provider and its handles, sync or async, as if async."""

    def __init__(self, provider: Any, *, is_async: bool) -> None:
        self.provider = provider
        self._is_async = is_async

    async def done(self, result: Any) -> Any:
        return await result if self._is_async else result

    async def sql(self, handle: Any, words: str) -> None:
        await self.done(handle.execute(text(words)))

    async def run(self, handle: Any, command: PgStatement) -> Any:
        return await self.done(self.provider.execute(handle, command))

    @asynccontextmanager
    async def transaction(self, first: PgStatement | None = None) -> AsyncGenerator[Any]:
        block = self.provider.transaction(first)
        if self._is_async:
            async with block as handle:
                yield handle
        else:
            with block as handle:
                yield handle
        assert first is None or len(block.answer) == 1


@pytest.fixture(params=["psycopg-session", "psycopg-connection", "asyncpg-session", "asyncpg-connection", "sync"])
async def world(request: pytest.FixtureRequest, database_url: str) -> Any:
    driver, _, kind = request.param.partition("-")
    with engine_for(database_url) as engine, engine.begin() as connection:
        connection.execute(text("CREATE TABLE t (n int PRIMARY KEY)"))
    if driver == "sync":
        with engine_for(database_url, pool_size=1, max_overflow=0) as engine:
            provider: Any = connect_sync(sessionmaker(engine), jobs=[], notify=None).sessions.storage.provider
            yield Awaited(provider, is_async=False)
            provider.close()
        return
    async with async_engine_for(database_url, driver, pool_size=1, max_overflow=0) as async_engine:
        source: Any = async_sessionmaker(async_engine) if kind == "session" else async_engine
        provider = connect(source, jobs=[], notify=None).sessions.storage.provider
        yield Awaited(provider, is_async=True)
        await provider.close()


async def rows(world: Awaited) -> int:
    """Also shows that the only connection of the pool is back, outside of any transaction."""
    ((count,),) = await world.run(None, PgStatement("SELECT count(*) FROM t"))
    async with world.transaction(FIRST):
        pass
    return int(count)


async def test_it_commits(world: Any) -> None:
    async with world.transaction(FIRST) as handle:
        await world.run(handle, INSERT)
    assert await rows(world) == 1


async def test_an_error_rolls_back(world: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        async with world.transaction(FIRST) as handle:
            await world.run(handle, INSERT)
            raise ZeroDivisionError
    assert await rows(world) == 0


async def test_the_first_command_fails(world: Any) -> None:
    with pytest.raises(Exception, match="nowhere"):
        async with world.transaction(PgStatement("SELECT * FROM nowhere")):
            raise AssertionError("it has begun")
    assert await rows(world) == 0


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK"])
async def test_ended_and_begun_again(world: Any, word: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with world.transaction(FIRST) as handle:
            await world.sql(handle, word)
            await world.sql(handle, "BEGIN")
            await world.run(handle, INSERT)
    assert await rows(world) == 0


@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
async def test_ended_through_sqlalchemy(world: Any, end: str) -> None:
    with pytest.raises(TransactionMisused, match="ended by code inside"):
        async with world.transaction(FIRST) as handle:
            await world.run(handle, INSERT)
            await world.done(getattr(handle, end)())
    assert await rows(world) == (end == "commit")


async def test_an_error_that_was_swallowed(world: Any) -> None:
    with pytest.raises(TransactionMisused, match="swallowed"):
        async with world.transaction(FIRST) as handle:
            await world.run(handle, INSERT)
            with pytest.raises(DBAPIError):
                await world.sql(handle, "SELECT 1/0")
    assert await rows(world) == 0
