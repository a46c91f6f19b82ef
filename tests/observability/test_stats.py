"""`client.stats()` is one statement, and what it costs does not depend on history."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import psycopg
from tests.adapters.postgres.scenes import explain, pages
from tests.behaviour.conftest import Setting
from tests.support.jobs import JOBS, Greet

from queuert import SyncClient
from queuert.adapters.postgres.operations import PostgresOperations

HISTORY = 5_000


def begin(client: SyncClient[Any], number: int) -> None:
    with client.transaction() as tx:
        client.start_many(tx, [Greet() for _ in range(number)])


def complete(client: SyncClient[Any], number: int) -> None:
    """One chain to its end, by the rules; then many copies of it, past them: those would take minutes."""
    with client.transaction() as tx:
        chain = client.start(tx, Greet())
        with client.take_over(tx, chain) as current:
            current.settle("Hello")
        execute: Any = tx.connection.execute
        columns: list[str] = [row[0] for row in execute("SELECT * FROM queuert_job LIMIT 0").description]
        own = {"id": "{id}", "chain_id": "{id}"}
        chosen = ", ".join(own.get(name) or name for name in columns)
        postgres = not isinstance(tx.connection, sqlite3.Connection)
        new_id = "gen_random_uuid()" if postgres else "printf('%08x-0000-7000-8000-%012x', n, n)"
        series = f"generate_series(1, {number}) AS n" if postgres else _series(number)
        where = f"queuert_job.id = '{chain.id}'"
        execute(
            f"INSERT INTO queuert_job ({', '.join(columns)}) "
            f"SELECT {chosen.format(id=new_id)} FROM queuert_job, {series} WHERE {where}"
        )


def _series(number: int) -> str:
    return f"(WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {number}) SELECT n FROM s)"


def test_sqlite_does_the_same_steps_with_and_without_history(tmp_path: Path) -> None:
    setting = Setting("sqlite", None, tmp_path)
    with setting.connect_sync(JOBS) as client:
        begin(client, 50)
        before = _steps(client)
        complete(client, HISTORY)
        assert _steps(client) == before
        assert [(each.job_type, each.pending) for each in client.stats()] == [("greet", 50)]


def _steps(client: SyncClient[Any]) -> int:
    """The instructions of SQLite's machine, and that it is one statement."""
    count = 0
    statements: list[str] = []

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    with client.transaction() as tx:
        tx.connection.set_progress_handler(tick, 1)
        tx.connection.set_trace_callback(statements.append)
        client.stats(tx=tx)
        tx.connection.set_trace_callback(None)
        tx.connection.set_progress_handler(None, 0)
    assert len(statements) == 1
    return count


def test_postgres_touches_the_same_pages_with_and_without_history(tmp_path: Path) -> None:
    setting = Setting("postgres", None, tmp_path)
    program = PostgresOperations().stats()
    command = next(program)
    with (
        setting.connect_sync(JOBS) as client,
        psycopg.connect(setting.url, autocommit=True) as connection,
    ):
        begin(client, 50)
        connection.execute("VACUUM ANALYZE queuert_job")
        before = pages(explain(connection, command.text, command.values))
        complete(client, HISTORY)
        connection.execute("VACUUM ANALYZE queuert_job")
        after = pages(explain(connection, command.text, command.values))
        assert after <= before + 5
        assert [(each.job_type, each.pending) for each in client.stats()] == [("greet", 50)]
