"""A worker killed with SIGKILL, wherever it stands: each job's effect is there once in the end."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.killed_worker import POINTS, ledger_handlers
from tests.behaviour.steps import Step, job, start
from tests.behaviour.watching import Points
from tests.conformance.postgres_harness import database

import queuert
from queuert import Chain, Client, Worker


class Ledger:
    """The user's own table, in the database of the jobs."""

    def __init__(self, kind: str, directory: Path) -> None:
        self._setting = Setting("sqlite" if kind == "sqlite" else "postgres", None, directory)
        self.url = self._setting.url.replace(
            "postgresql://", "postgresql+asyncpg://" if kind == "asyncpg" else "postgresql://"
        )
        self._path = directory / "jobs.db" if kind == "sqlite" else None
        self.say("CREATE TABLE ledger (number INTEGER)")

    def say(self, text: str) -> list[int]:
        connection: Any = sqlite3.connect(self._path) if self._path else psycopg.connect(database())
        with closing(connection):
            cursor = connection.execute(text)
            found = [number for (number,) in cursor.fetchall()] if cursor.description else []
            connection.commit()
        return found

    def connect(self) -> Client[Any]:
        return queuert.connect(self.url, jobs=[Step], poll_interval=0.05)

    @property
    def numbers(self) -> list[int]:
        return self.say("SELECT number FROM ledger ORDER BY number")


async def trigger(client: Client[Any], chain: Chain[Step]) -> None:
    async with client.transaction() as tx:
        await client.trigger(tx, chain)


@pytest.fixture(params=["sqlite", "psycopg", pytest.param("asyncpg", marks=pytest.mark.soak)])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(request.param, tmp_path)
    yield made
    made.say("DROP TABLE ledger")


@pytest.mark.parametrize("point", POINTS)
async def test_each_job_takes_effect_once(ledger: Ledger, point: str) -> None:
    async with ledger.connect() as client:
        chains = await start(client, 3, after=3600)
        await trigger(client, chains[0])
        async with child("killed_worker", ledger.url, point) as worker:
            # One after the other: the next handler may begin before this job is settled.
            assert await client.wait(chains[0], timeout=60) == 0
            await trigger(client, chains[1])
            assert await worker.says() == "here"
            worker.send(signal.SIGKILL)
            assert await worker.exit_code() == -signal.SIGKILL
        assert ledger.numbers == ([0, 1] if point == "committed" else [0])
        killed = await job(client, chains[1])
        assert killed.status == ("completed" if point == "committed" else "running")
        await trigger(client, chains[2])
        async with Worker(client, ledger_handlers("nowhere", Points()), renew_interval=0.05, poll_interval=0.05):
            for number, chain in enumerate(chains):
                assert await client.wait(chain, timeout=60) == number
        assert ledger.numbers == [0, 1, 2]
        record = await job(client, chains[1])
        assert record.attempt_number == (1 if point == "committed" else 2)
        assert record.last_error is None
