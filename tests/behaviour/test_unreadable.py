"""Rows that were written by hand: one that cannot be read fails alone, and the rest of its claim runs."""

from __future__ import annotations

import sqlite3
from typing import Any

import psycopg
import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Step, eventually, job

from queuert import Attempt, Handlers, Worker

pytestmark = pytest.mark.drivers

INPUTS = {"sqlite": ["", "no JSON", "[1e400]", '{"number": "seven"}', "null"]}
INPUTS["postgres"] = ["[1e400]", '{"number": "seven"}', "null", r'{"number": "\u0000"}', "1e400"]
TIMES: dict[str, list[Any]] = {
    "sqlite": [-(2**63), -(10**17), 0],
    "postgres": ["-infinity", "4000-01-01 00:00 BC", "1970-01-01 00:00Z"],
}
DEADLINES: dict[str, Any] = {"sqlite": 2**63 - 1, "postgres": "infinity"}


def by_hand(setting: Setting, text: str, *values: Any) -> None:
    """Change a row; `?` is a parameter."""
    if setting.state == "sqlite":
        with sqlite3.connect(setting.url.removeprefix("sqlite:///")) as connection:
            connection.execute(text, values)
        connection.close()
    else:
        url = setting.url.replace("postgresql+asyncpg:", "postgresql:")
        with psycopg.connect(url) as server:
            server.execute(text.replace("?", "%s").encode(), values)


async def test_rows_that_cannot_be_read_fail_alone(setting: Setting) -> None:
    if setting.state == "memory":
        pytest.skip("nothing but our own code writes into memory")
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step, max_attempts=1)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        return attempt.job.number

    async with setting.connect([Step]) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Step(number=number) for number in range(20)])
        for chain, text in zip(chains, INPUTS[setting.state], strict=False):
            by_hand(setting, "UPDATE queuert_job SET input = ? WHERE id = ?", text, chain.id)
        for chain, moment in zip(chains[10:], TIMES[setting.state], strict=False):
            for table in ("job", "ready") if setting.state == "postgres" else ("job",):
                by_hand(setting, f"UPDATE queuert_{table} SET scheduled_at = ? WHERE id = ?", moment, chain.id)
            by_hand(setting, "UPDATE queuert_job SET created_at = ? WHERE id = ?", moment, chain.id)
        for chain in chains[12:14]:
            by_hand(setting, "UPDATE queuert_job SET deadline = ? WHERE id = ?", DEADLINES[setting.state], chain.id)
        async with Worker(client, handlers, concurrency=30, poll_interval=setting.poll_interval):
            await eventually(lambda: _all_ended(client))
        assert sorted(ran) == list(range(5, 20))
        records = [await job(client, chain) for chain in chains]
        assert [record.status for record in records] == ["failed"] * 5 + ["completed"] * 15
        assert [(record.last_error or {}).get("code") for record in records[:6]] == ["SERIALIZATION_ERROR"] * 5 + [None]
        assert {record.attempt_number for record in records} == {1}


async def test_text_that_is_not_utf_8_costs_no_other_job(setting: Setting) -> None:
    if setting.state != "sqlite":
        pytest.skip("only SQLite stores text that is not UTF-8")
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step, max_attempts=1)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        return attempt.job.number

    async with setting.connect([Step]) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Step(number=number) for number in range(10)])
        bad_text = "CAST(x'80ff' AS TEXT)"
        for chain, column in zip(chains, ("input", "trace_context", "dedup_key", "completed_by"), strict=False):
            by_hand(setting, f"UPDATE queuert_job SET {column} = {bad_text} WHERE id = ?", chain.id)
        assert len((await client.list_jobs()).items) == 10
        async with Worker(client, handlers, concurrency=30, poll_interval=setting.poll_interval):
            await eventually(lambda: _all_ended(client))
        assert sorted(ran) == list(range(1, 10)), "what is not part of the input can be replaced"
        records = [await job(client, chain) for chain in chains]
        assert [record.status for record in records] == ["failed"] + ["completed"] * 9
        assert (records[0].last_error or {})["code"] == "SERIALIZATION_ERROR"


async def _all_ended(client: Any) -> bool:
    return not [stats for stats in await client.stats() if stats.pending or stats.running]
