"""A worker killed with SIGKILL, wherever it stands: each job's effect is there once in the end."""

from __future__ import annotations

import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.killed_worker import LEASE, POINTS, ledger_handlers
from tests.behaviour.steps import Step, job, start
from tests.behaviour.watching import Points

from queuert import Worker


def numbers(path: Path) -> list[int]:
    with closing(sqlite3.connect(path)) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM ledger ORDER BY number")]


@pytest.mark.parametrize("point", POINTS)
async def test_each_job_takes_effect_once(tmp_path: Path, point: str) -> None:
    path = tmp_path / "jobs.db"
    setting = Setting("sqlite", None, tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE ledger (number INTEGER)")
    async with setting.connect([Step]) as client:
        chains = await start(client, 3)
        async with child("killed_worker", setting.url, point) as worker:
            assert await worker.says() == "here"
            worker.send(signal.SIGKILL)
            assert await worker.exit_code() == -signal.SIGKILL
        assert numbers(path) == ([0, 1] if point == "committed" else [0])
        killed = await job(client, chains[1])
        assert killed.status == ("completed" if point == "committed" else "running")
        async with Worker(client, ledger_handlers("nowhere", Points()), lease=LEASE, poll_interval=0.05):
            for number, chain in enumerate(chains):
                assert await client.wait(chain, timeout=60) == number
        assert numbers(path) == [0, 1, 2]
        record = await job(client, chains[1])
        assert record.attempt == (1 if point == "committed" else 2)
        error = record.error
        assert (error is None) == (point == "committed")
        assert error is None or error["code"] == "LEASE_EXPIRED"
