"""A PostgreSQL installation for tests, whose clock is a row.

Its functions are the ones of every installation, with another expression for "now". The table of
the clock is also what marks the installation: one without it is not for tests. Its statements are
here and not in `.sql` files, because no other installation has the table.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.installation import Installation
from queuert.adapters.postgres.operations import PostgresOperations
from queuert.adapters.sql.migrate import one_at_a_time
from queuert.base.times import EPOCH
from queuert.errors import InvalidArgument
from queuert.ports.clock import Clock, catch_up, follow
from queuert.ports.program import Program


class PostgresInVirtualTime(PostgresOperations):
    def __init__(self, schema: str, table_prefix: str, clock: Clock, url: str) -> None:
        self._clock_row = _ClockRow(Installation(schema, table_prefix), clock, url)
        super().__init__(schema, table_prefix, f"(SELECT c.now FROM {self._clock_row.table} AS c)")

    def migrate(self) -> Program[list[int]]:
        if not self._clock_row.exists:
            ((has_tables, _),) = yield self.statement("migrate.exists")
            yield from one_at_a_time(self.texts, partial(self._clock_row.create, has_tables=has_tables))
        return (yield from super().migrate())


class _ClockRow:
    def __init__(self, installation: Installation, clock: Clock, url: str) -> None:
        self.table = installation.name("test_clock")
        self.exists = False
        self._installation = installation
        self._clock = clock
        self._url = url
        follow(clock, self.write)

    def create(self, *, has_tables: bool) -> Program[bool]:
        """Make the row, or read it. Refuse an installation that is not for tests."""
        ((is_marked,),) = yield PgStatement("SELECT to_regclass($1::text) IS NOT NULL", (self.table,), writes=False)
        if has_tables and not is_marked:
            raise InvalidArgument(
                f"clock= is for tests, and the tables {self._installation.name('…')} are not: they were made without a "
                "clock. Use a schema or a table_prefix of its own"
            )
        if not is_marked:
            words = self._installation.words()
            yield PgStatement(
                f"DO $body$ BEGIN IF to_regnamespace({words['schema_text']}) IS NULL THEN "
                f"CREATE SCHEMA IF NOT EXISTS {words['schema']}; END IF; END $body$"
            )
            yield PgStatement(
                f"CREATE TABLE {self.table} (only_row boolean PRIMARY KEY CHECK (only_row), now timestamptz NOT NULL)"
            )
        ((micros,),) = yield PgStatement(
            f"INSERT INTO {self.table} AS c VALUES (true, $1::timestamptz) ON CONFLICT (only_row) "
            "DO UPDATE SET now = greatest(c.now, excluded.now) RETURNING (extract(epoch FROM c.now) * 1000000)::bigint",
            (self._clock.now(),),
        )
        catch_up(self._clock, EPOCH + timedelta(microseconds=micros))
        self.exists = True
        return True

    def write(self, moment: datetime) -> None:
        """On a connection of its own, with either driver: plain function calls move the time."""
        if not self.exists:
            return
        text = f"UPDATE {self.table} SET now = '{moment.isoformat()}'"
        try:
            import psycopg
        except ImportError:
            with ThreadPoolExecutor(1) as thread:  # this one may have an event loop that runs
                thread.submit(asyncio.run, _with_asyncpg(self._url, text)).result()
        else:
            with psycopg.connect(self._url, autocommit=True) as connection:
                connection.execute(text.encode())


async def _with_asyncpg(url: str, text: str) -> None:
    import asyncpg

    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute(text)
    finally:
        await connection.close()
