"""The view of jobs for other tools: part of what we promise, on PostgreSQL and on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.postgres import Databases, postgres

from queuert.adapters.postgres.adapter import sync_psycopg_state
from queuert.adapters.sqlite import sync_sqlite_state
from queuert.base.statuses import STATUSES
from queuert.ports.provider import run
from queuert.records.listings import JobFilter, PageRequest
from queuert.records.model import JobRow, When
from queuert_conformance.state.build import (
    FUTURE,
    cancelled,
    completed,
    continued,
    expired,
    failed,
    key,
    later,
    new_job,
    next_job,
    put_back,
    queue,
    request,
    waiting_for,
)

__all__ = ["postgres"]

PROMISED = [
    "id", "job_type", "status", "chain_id", "chain_type", "chain_index", "priority", "attempt_number", "created_at",
    "scheduled_at", "last_attempt_at", "completed_at", "completed_by", "continued_to", "leased_by", "leased_until",
    "deadline", "dedup_key", "blockers_left", "input", "output", "last_error", "losses",
]  # fmt: skip
"""Never change one, nor their order: add new ones behind them."""

TIMES = [name for name in PROMISED if name.endswith("_at") or name in ("leased_until", "deadline")]
JSON = ["input", "output", "last_error"]


class Database:
    def __init__(self, state: Any, connection: Any) -> None:
        self.state = state
        self.connection = connection

    def __call__(self, program: Any) -> Any:
        return run(self.state.provider, None, program)

    def view(self, more: str = "") -> list[dict[str, Any]]:
        cursor = self.connection.execute(f"SELECT * FROM queuert_jobs {more}")
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, postgres: Databases, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        with closing(sync_sqlite_state(tmp_path / "jobs.db")) as sqlite:
            run(sqlite.provider, None, sqlite.operations.migrate())
            with closing(sqlite3.connect(tmp_path / "jobs.db")) as connection:
                yield Database(sqlite, connection)
        return
    with postgres.fresh() as url, closing(sync_psycopg_state(url)) as state, psycopg.connect(url) as connection:
        run(state.provider, None, state.operations.migrate())
        connection.autocommit = True
        yield Database(state, connection)


def jobs_in_every_status(database: Database) -> None:
    operations = database.state.operations
    types = ["completed", "continued", "failed", "cancelled", "expired", "retried", "running"]
    jobs = [new_job(name, dedup=key(name), priority=7, deadline=When(at=FUTURE)) for name in types]
    more = [
        new_job("due"),
        new_job("scheduled", schedule=later()),
        new_job("blocked", blockers=waiting_for(jobs[-1].id, chain_type="running")),
    ]
    database(operations.create_jobs([*jobs, *more]))
    claims = {each.job.type_name: each for each in database(operations.claim(request(queue(*types)))).jobs}
    database(
        operations.settle(
            [
                completed(claims["completed"], b'{"total": [1, "two"]}'),
                continued(claims["continued"], next_job(claims["continued"].job, "next")),
                failed(claims["failed"]),
                cancelled(claims["cancelled"]),
                expired(claims["expired"]),
                put_back(claims["retried"]),
            ]
        )
    )


def in_the_record(database: Database, name: str, value: Any) -> Any:
    """What is in a column of the view, as the record of the job has it."""
    if value is None:
        return None
    if name in TIMES:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        return moment.astimezone(UTC)
    if name in JSON:
        return value.encode() if isinstance(value, str) else value
    return str(value) if name in ("id", "chain_id", "continued_to") else value


def test_every_status_is_told_truly(database: Database) -> None:
    jobs_in_every_status(database)
    rows: list[JobRow] = database(database.state.operations.list_jobs(JobFilter(), PageRequest(100))).rows
    assert {row.status for row in rows} == set(STATUSES)
    found = {str(each["id"]): each for each in database.view()}
    assert len(found) == len(rows) == 11
    for row in rows:
        assert found[row.id]["status"] == row.status
    (running,) = database.view("WHERE status = 'running'")
    assert running["job_type"] == "running"
    assert running["leased_by"] is not None
    assert running["attempt_number"] == 1


def test_its_columns_are_those_of_the_jobs(database: Database) -> None:
    jobs_in_every_status(database)
    if isinstance(database.connection, psycopg.Connection):
        from psycopg.types.json import set_json_loads

        set_json_loads(lambda text: bytes(text) if isinstance(text, bytes) else text.encode(), database.connection)
    found = {str(each["id"]): each for each in database.view()}
    for row in database(database.state.operations.list_jobs(JobFilter(), PageRequest(100))).rows:
        for name in PROMISED:
            of_row = {"job_type": "type_name", "attempt_number": "attempt"}.get(name, name)
            expected, value = getattr(row, of_row), in_the_record(database, name, found[row.id][name])
            if name in TIMES and expected is not None and isinstance(database.connection, sqlite3.Connection):
                assert abs((value - expected).total_seconds()) <= 0.001, "milliseconds are shown"
            else:
                assert value == expected, (row.type_name, name)


def test_it_is_only_ever_extended(database: Database) -> None:
    jobs_in_every_status(database)
    assert list(database.view()[0])[: len(PROMISED)] == PROMISED


def test_it_depends_on_tables_only(database: Database) -> None:
    """Functions come and go, with their sets."""
    if isinstance(database.connection, sqlite3.Connection):
        ((text,),) = database.connection.execute("SELECT sql FROM sqlite_schema WHERE name = 'queuert_jobs'")
        assert "FROM queuert_job" in text
        return
    found = database.connection.execute(
        "SELECT DISTINCT d.refclassid::regclass::text, c.relname FROM pg_rewrite AS r JOIN pg_depend AS d "
        "ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid LEFT JOIN pg_class AS c ON c.oid = d.refobjid "
        "WHERE r.ev_class = 'queuert_jobs'::regclass AND d.refobjid <> r.ev_class ORDER BY 2"
    ).fetchall()
    assert found == [("pg_class", "queuert_job"), ("pg_class", "queuert_running")]


def test_one_job_is_found_by_an_index(database: Database) -> None:
    if isinstance(database.connection, sqlite3.Connection):
        plan = database.connection.execute("EXPLAIN QUERY PLAN SELECT * FROM queuert_jobs WHERE id = 'x'").fetchall()
        assert "USING INDEX" in str(plan)
        return
    database.connection.execute("SET enable_seqscan = off")
    plan = database.connection.execute(
        "EXPLAIN SELECT * FROM queuert_jobs WHERE chain_id = '00000000-0000-0000-0000-000000000000'"
    ).fetchall()
    assert "queuert_job_chain" in str(plan)
    assert "Seq Scan" not in str(plan)
