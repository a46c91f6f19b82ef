"""What a handler leaves on its connection reaches neither the library nor other jobs."""

from __future__ import annotations

import inspect
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, Step

import queuert
from queuert import Attempt, Backoff, Chain, ChainFailed, Client, Handlers, StorageReadOnly, Worker

CHANGES = {
    "sqlite": {"PRAGMA busy_timeout": "7", "PRAGMA cache_size": "77"},
    "postgres": {"work_mem": "77kB", "search_path": "pg_catalog"},
}
LOOKS = 3
"""Jobs that look at the settings, after the one that has changed them."""


async def ask(connection: Any, words: str) -> str | None:
    """The first value of the answer, with whatever driver."""
    if hasattr(connection, "fetchval"):
        return str(await connection.fetchval(words))
    cursor = connection.execute(words)
    cursor = await cursor if inspect.isawaitable(cursor) else cursor
    row = cursor.fetchone() if cursor.description is not None else None
    row = await row if inspect.isawaitable(row) else row
    return None if row is None else str(row[0])


@pytest.mark.drivers
async def test_settings_that_a_handler_leaves(setting: Setting) -> None:
    """A `SET` or a PRAGMA in one job: the next ones, and the library, do not see it."""
    if setting.state == "memory":
        pytest.skip("it has no settings")
    is_sqlite = setting.state == "sqlite"
    changes = CHANGES["sqlite" if is_sqlite else "postgres"]
    handlers = Handlers[Any](max_attempts=1)

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        async with attempt.complete() as tx:
            seen = [await ask(tx.connection, name if is_sqlite else f"SHOW {name}") for name in changes]
            for name, value in changes.items() if attempt.job.number == 0 else ():
                await ask(tx.connection, f"{name} = {value}" if is_sqlite else f"SET {name} TO '{value}'")
            return sum(each in changes.values() for each in seen)

    async with setting.connect([Step]) as client, Worker(client, handlers, poll_interval=setting.poll_interval):
        for number in range(1 + LOOKS):
            async with client.transaction() as tx:
                chain = await client.start(tx, Step(number=number))
            assert await client.wait(chain, timeout=PATIENCE) == 0, number


@pytest.mark.parametrize("kept", [False, True])
async def test_a_writer_that_cannot_write_is_replaced(tmp_path: Path, kept: bool) -> None:
    """A handler that makes its connection read-only fails by itself; or breaks it later, if it has kept it."""
    handlers, connections = Handlers[sqlite3.Connection](max_attempts=1), list[sqlite3.Connection]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, sqlite3.Connection]) -> int:
        async with attempt.complete() as tx:
            connections.append(tx.connection)
            if attempt.job.number == 0 and not kept:
                tx.connection.execute("PRAGMA query_only = ON")
            return attempt.job.number

    options: Any = {"poll_interval": 0.05, "recovery_backoff": Backoff(initial=0.01)}
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    async with queuert.connect(url, jobs=[Step]) as client, Worker(client, handlers, **options):
        broken = await client.submit(Step(number=0))
        if kept:
            assert await client.wait(broken, timeout=PATIENCE) == 0
            connections[0].execute("PRAGMA query_only = ON")
        else:
            with pytest.raises(ChainFailed, match="readonly"):
                await client.wait(broken, timeout=PATIENCE)
        for number in (1, 2):
            chain = await start_again(client, number)
            assert await client.wait(chain, timeout=PATIENCE) == number


async def start_again(client: Client[Any], number: int) -> Chain[Step]:
    """Start a step. The first statement that the broken connection refuses is the caller's loss."""
    try:
        return await client.submit(Step(number=number))
    except StorageReadOnly:
        return await client.submit(Step(number=number))
