"""PostgreSQL for the state suite: one migrated database for each process, emptied before each case."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import cache
from typing import Any

import psycopg
from psycopg_pool import ConnectionPool
from tests.support.postgres import forget_jobs, server

from queuert.adapters.postgres.adapter import asyncpg_state, psycopg_state, sync_psycopg_state
from queuert.ports.provider import run
from queuert_conformance import StateHarness
from queuert_conformance.state.driver import AnyStateAdapter


@cache
def database() -> str:
    """The URL of this process's database, with our tables in it. It goes with the server."""
    url = server().url_of(server().create())
    state = sync_psycopg_state(url)
    try:
        run(state.provider, None, state.operations.migrate())
    finally:
        state.close()
    return url


@cache
def _connection() -> psycopg.Connection[Any]:
    """Kept, for connecting takes longer than emptying."""
    connection = psycopg.connect(database(), autocommit=True)
    atexit.register(connection.close)
    return connection


def empty() -> None:
    """Forget everything that is stored in this process's database."""
    if _connection().broken or _connection().closed:
        _connection.cache_clear()
    forget_jobs(_connection())


class PostgresHarness(StateHarness):
    def __init__(self, make: Callable[[str], AnyStateAdapter], poison: Callable[[Any], Any]) -> None:
        self.make = make
        self._poison = poison
        super().__init__(make(database()))

    async def reset(self) -> None:
        empty()

    async def second(self) -> AnyStateAdapter:
        return self.make(database())

    def poison(self, connection: Any) -> Any:
        return self._poison(connection)


async def _poison_async(connection: Any) -> None:
    try:
        await connection.execute("SELECT 1 / 0")
    except Exception:
        return


def _poison_sync(connection: Any) -> None:
    try:
        connection.execute("SELECT 1 / 0")
    except psycopg.Error:
        return


def psycopg_harness() -> StateHarness:
    return PostgresHarness(psycopg_state, _poison_async)


def sync_psycopg_harness() -> StateHarness:
    return PostgresHarness(sync_psycopg_state, _poison_sync)


@cache
def _pool() -> ConnectionPool[Any]:
    """Kept from case to case: a new server process needs longer for its first plans than for a case."""
    pool = ConnectionPool[Any](database(), min_size=1, max_size=20, open=True)
    atexit.register(pool.close)
    return pool


def kept_psycopg_harness() -> StateHarness:
    return PostgresHarness(lambda _: sync_psycopg_state(_pool()), _poison_sync)


def asyncpg_harness() -> StateHarness:
    return PostgresHarness(asyncpg_state, _poison_async)
