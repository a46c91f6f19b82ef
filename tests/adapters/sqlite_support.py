"""A SQLite file with a clock that stands still, and short words for what the tests do with it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from tests.support.sqlite import with_tables

from queuert.adapters.sql.statement import Statement
from queuert.adapters.sqlite import SqliteOperations, sqlite_state, sync_sqlite_state
from queuert.ports.program import Program
from queuert.ports.provider import run, run_async
from queuert.ports.state import StateAdapter
from queuert.records.model import (
    BlockerRef,
    Claimed,
    ClaimRequest,
    ClaimResult,
    JobRow,
    NewJob,
    QueueLimit,
    Settlement,
    TypeLimit,
)

T = TypeVar("T")

START = datetime(2030, 1, 1, tzinfo=UTC)
ERROR = b'{"code":"BOOM"}'


class Clock:
    def __init__(self) -> None:
        self.time = START

    def __call__(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


class Sqlite:
    """The sync adapter. Everything outside a transaction unless a connection is given."""

    def __init__(self, path: Path, *, migrate: bool = True, **options: Any) -> None:
        self.path = path
        self.clock = Clock()
        if migrate and "table_prefix" not in options and not path.exists():
            with_tables(path)
        self.adapter = sync_sqlite_state(path, clock=self.clock, **options)
        self.provider = self.adapter.provider
        operations = self.adapter.operations
        assert isinstance(operations, SqliteOperations)
        self.ops = operations
        if migrate:
            self.do(self.ops.migrate())

    def do(self, program: Program[T], connection: sqlite3.Connection | None = None) -> T:
        return run(self.provider, connection, program)

    def create(self, *jobs: NewJob, connection: sqlite3.Connection | None = None) -> None:
        self.do(self.ops.create_jobs(jobs), connection)

    def claim(self, *types: str, limit: int = 100) -> ClaimResult:
        return self.do(self.ops.claim(claim_of(*types, limit=limit)))

    def complete(self, *claims: Claimed) -> None:
        self.do(self.ops.settle([completed(claim) for claim in claims]))

    def job(self, job_id: str) -> JobRow:
        row = self.do(self.ops.get_jobs([job_id]))[0]
        assert row is not None
        return row

    def count(self) -> int:
        return len(self.query("SELECT id FROM queuert_job"))

    def query(self, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
        """On a connection that the adapter knows nothing of."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    @contextmanager
    def own_connection(self) -> Generator[sqlite3.Connection, None, None]:
        """The connection that the provider uses in this thread, outside a transaction."""
        with self.provider.transaction() as connection:
            pass
        yield connection

    @contextmanager
    def traced(self) -> Generator[list[str], None, None]:
        """The statements that this thread's connection runs, without those that frame a transaction."""
        seen: list[str] = []

        def trace(sql: str) -> None:
            if not sql.startswith(("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE")):
                seen.append(sql)

        with self.own_connection() as connection:
            connection.set_trace_callback(trace)
            try:
                yield seen
            finally:
                connection.set_trace_callback(None)

    def steps(self, action: Callable[[], object]) -> int:
        """How many instructions of SQLite's virtual machine it takes, in tens."""
        ticks = count()
        with self.own_connection() as connection:
            connection.set_progress_handler(lambda: next(ticks) < 0, 10)
            try:
                action()
            finally:
                connection.set_progress_handler(None, 10)
        return next(ticks)

    def plan(self, statement: Statement) -> list[str]:
        """The query plan, a line for each step."""
        with self.own_connection() as connection:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {statement.text}", statement.parameters).fetchall()
        return [row[3] for row in rows]


class AsyncSqlite:
    """The async adapter."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.clock = Clock()
        self.adapter: StateAdapter[sqlite3.Connection] = sqlite_state(path, clock=self.clock, **options)
        self.provider = self.adapter.provider
        self.ops = self.adapter.operations

    async def do(self, program: Program[T], connection: sqlite3.Connection | None = None) -> T:
        return await run_async(self.provider, connection, program)


_numbers = count(1)


def new_id() -> str:
    """Later ones sort later."""
    return f"00000000-0000-7000-8000-{next(_numbers):012x}"


def job(type_name: str = "task", **fields: Any) -> NewJob:
    job_id = fields.pop("id", None) or new_id()
    fields.setdefault("input", b"{}")
    return NewJob(id=job_id, type_name=type_name, chain_id=job_id, chain_type=type_name, chain_index=0, **fields)


def next_job(before: JobRow | NewJob, type_name: str = "task", **fields: Any) -> NewJob:
    return NewJob(
        id=new_id(),
        type_name=type_name,
        chain_id=before.chain_id,
        chain_type=before.chain_type,
        chain_index=before.chain_index + 1,
        input=b"{}",
        **fields,
    )


def waiting_for(*jobs: NewJob) -> tuple[BlockerRef, ...]:
    return tuple(BlockerRef(each.chain_id, each.chain_type) for each in jobs)


def claim_of(*types: str, limit: int = 100) -> ClaimRequest:
    limits = tuple(TypeLimit(name, 1_000_000, 60.0) for name in types or ("task",))
    return ClaimRequest("worker", limit, (QueueLimit("queue", 0, limits),))


def completed(claim: Claimed, continuation: NewJob | None = None) -> Settlement:
    output = b"null" if continuation is None else None
    return Settlement(
        job_id=claim.job.id,
        token=claim.job.token,
        status="completed",
        output=output,
        continuation=continuation,
    )
