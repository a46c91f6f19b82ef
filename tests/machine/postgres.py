"""PostgreSQL for the machine: one database for each process, emptied for each program, with the machine's own time.

"Now" is a row in a table of its own, read by a function that stands where the database's clock would. It is set from
outside before each command, so that an open transaction sees the time go on, as it would.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import psycopg
from tests.machine.driver import AnyStateAdapter
from tests.machine.world import Clock
from tests.support.postgres import forget_jobs, server

from queuert.adapters.postgres.drivers.asyncpg import AsyncpgProvider
from queuert.adapters.postgres.drivers.psycopg import PsycopgProvider, PsycopgSyncProvider
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.ports.state import StateAdapter, SyncStateAdapter

CLOCK = """
    CREATE TABLE machine_clock (now timestamptz NOT NULL);
    INSERT INTO machine_clock VALUES (now());
    CREATE FUNCTION machine_now() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT now FROM public.machine_clock';
"""


@cache
def database() -> str:
    """The URL of this process's database. It goes with the server."""
    url = server().url_of(server().create())
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(CLOCK)
    return url


class Time:
    """Carries the machine's time into the database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set_to: Any = None
        self.connection = psycopg.connect(database(), autocommit=True)

    def carry(self) -> None:
        if self._set_to != self._clock.now:
            self._set_to = self._clock.now
            self.connection.execute("UPDATE machine_clock SET now = %s", (self._set_to,))


class Clocked:
    """A provider that does everything in the machine's time."""

    time: Time

    def execute(self, connection: Any, command: Any) -> Any:
        self.time.carry()
        return super().execute(connection, command)  # type: ignore[misc]


class ClockedSync(Clocked, PsycopgSyncProvider):
    pass


class ClockedPsycopg(Clocked, PsycopgProvider):
    pass


class ClockedAsyncpg(Clocked, AsyncpgProvider):
    pass


@contextmanager
def _emptied(clock: Clock, provider: Any) -> Generator[Any, None, None]:
    time = provider.time = Time(clock)
    try:
        if time.connection.execute("SELECT to_regclass('queuert_job')").fetchone() != (None,):
            forget_jobs(time.connection)
        yield PostgresOperations(clock="public.machine_now()")
    finally:
        time.connection.close()


@contextmanager
def postgres(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
    provider = ClockedSync(database(), max_size=2)
    with _emptied(clock, provider) as operations:
        yield SyncStateAdapter(operations, provider)


@contextmanager
def async_postgres(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
    provider = ClockedPsycopg(database(), max_size=2)
    with _emptied(clock, provider) as operations:
        yield StateAdapter(operations, provider)


@contextmanager
def asyncpg_postgres(clock: Clock) -> Generator[AnyStateAdapter, None, None]:
    provider: Any = ClockedAsyncpg(database(), max_size=2)
    with _emptied(clock, provider) as operations:
        yield StateAdapter(operations, provider)
