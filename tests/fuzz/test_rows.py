"""Rows that were changed by hand, in any column: other jobs run, and the worker lives."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import queuert
from queuert import Attempt, EntryJob, Handlers, Worker

TEXT = ["type_name", "chain_type", "completed_by", "dedup_key", "trace_context", "chain_trace_context", "input",
        "output", "last_error", "leased_by", "queue"]  # fmt: skip
NUMBERS = ["chain_index", "priority", "created_at", "scheduled_at", "completed_at", "attempt", "last_attempt_at",
           "leased_until", "token", "deadline", "blockers_left", "ordinal"]  # fmt: skip

BYTES = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"{}", b"null", b"[1e400]", b"\xff\xfe", b'"\\ud800"']))
EDGES = st.sampled_from([0, -1, 2**31, 2**63 - 1, -(2**63), 253402300799999999, 253402300800000000])


class Step(EntryJob[int], name="step"):
    number: int


handlers = Handlers[Any](max_attempts=1)


@handlers.handles(Step)
async def step(attempt: Attempt[Step]) -> int:
    return attempt.job.number


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


async def run_beside(path: Path, column: str, value: str) -> None:
    async with queuert.connect(f"sqlite:///{path}", jobs=[Step]) as client:
        broken = await client.submit(Step(number=1))
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute(f"UPDATE queuert_job SET {column} = {value} WHERE id = ?", (broken.id,))
        chain = await client.submit(Step(number=2))
        async with Worker(client, handlers, concurrency=2, poll_interval=0.05, shutdown_timeout=1):
            assert await client.wait(chain, timeout=45) == 2
        # What cannot be read is an error of the library, or shown as something else.
        for read in (client.get_job, client.get_chain, client.why):
            try:
                await read(broken.id)
            except queuert.QueuertError:
                continue
        assert (await client.list_jobs()).items
        async with client.transaction() as tx:
            await client.delete(tx, chain)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM queuert_job")
        connection.execute("DELETE FROM queuert_dedup")


quick = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    derandomize=True,
)


@quick
@given(column=st.sampled_from(TEXT), value=BYTES)
def test_texts(directory: Path, column: str, value: bytes) -> None:
    asyncio.run(run_beside(directory / "texts.db", column, f"CAST(x'{value.hex()}' AS TEXT)"))


@quick
@given(column=st.sampled_from(NUMBERS), value=st.one_of(EDGES, st.integers(-(2**63), 2**63 - 1)))
def test_numbers(directory: Path, column: str, value: int) -> None:
    asyncio.run(run_beside(directory / "numbers.db", column, str(value)))
