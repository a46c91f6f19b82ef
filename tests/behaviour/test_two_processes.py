"""Two processes on one SQLite file, both of which would look for themselves once an hour: the file tells them."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.programs.working_elsewhere import HOUR, WAITS
from tests.behaviour.steps import PATIENCE, Step, patiently

import queuert
from queuert import Client
from queuert.client.sync_client import SyncClient


@pytest.fixture(params=["sqlite", "sqlite+aiosqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"{request.param}:///{tmp_path / 'jobs.db'}"


def connect(url: str) -> Client[Any]:
    return queuert.connect(url, jobs=[Step], poll_interval=HOUR)


async def test_a_worker_is_woken_and_so_is_who_waits(url: str) -> None:
    async with connect(url) as client, child("working_elsewhere", url) as worker:
        assert await worker.says() == "idle"
        for number in range(3):
            async with client.transaction() as tx:
                chain = await client.start(tx, Step(number=number))
            assert await client.wait(chain, timeout=PATIENCE) == 2 * number


async def test_a_sync_client_is_woken(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"

    def ask(client: SyncClient[Any], number: int) -> Any:
        with client.transaction() as tx:
            chain = client.start(tx, Step(number=number))
        return client.wait(chain, timeout=PATIENCE)

    async with child("working_elsewhere", url) as worker:
        assert await worker.says() == "idle"
        with queuert.connect_sync(url, jobs=[Step], poll_interval=HOUR) as client:
            asked = [asyncio.to_thread(ask, client, number) for number in range(4)]
            assert await patiently(asyncio.gather(*asked)) == [0, 2, 4, 6]


async def test_a_worker_hears_that_its_job_is_taken_away(url: str) -> None:
    async with connect(url) as client, child("working_elsewhere", url) as worker:
        assert await worker.says() == "idle"
        async with client.transaction() as tx:
            chain = await client.start(tx, Step(number=WAITS))
        assert await worker.says() == "at work"
        async with client.transaction() as tx:
            await client.cancel(tx, chain)
        assert await worker.says() == "aborted: cancelled"


async def test_a_user_who_writes_by_his_own_connection(tmp_path: Path) -> None:
    """Joined: his COMMIT is not ours to see, and the watch takes it for what it is."""
    path = tmp_path / "jobs.db"
    url = f"sqlite:///{path}"
    async with connect(url) as client, child("working_elsewhere", url) as worker:
        assert await worker.says() == "idle"
        connection: Any = sqlite3.connect(path, isolation_level=None)
        try:
            async with client.after_commit(connection) as tx:
                connection.execute("BEGIN IMMEDIATE")
                chain = await client.start(tx, Step(number=4))
                connection.execute("COMMIT")
            assert await client.wait(chain, timeout=PATIENCE) == 8
        finally:
            connection.close()
