"""What the commands read does not grow with the number of jobs: pages are counted, or steps of SQLite's machine."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest
from tests.behaviour.steps import PATIENCE
from tests.cli.running import Ended, in_process

import queuert
from queuert import Filter, connect_sync
from queuert.features.doctor import examining as doctor
from queuert.operate.cli.commands import ls, status
from queuert.operate.cli.following import Follower

ID = "01900000-0000-7000-8000-{:012x}"

# Of ten jobs, six are completed, one has failed, two are ready and one is scheduled. One in a hundred is rare.
KINDS = """
    SELECT n, CASE WHEN n % 100 = 1 THEN 'rare' ELSE 't' || n % 2 END AS name,
        CASE WHEN n % 10 < 6 THEN 'completed' WHEN n % 10 = 6 THEN 'failed' ELSE 'pending' END AS status
"""
POSTGRES = f"""
    WITH made AS (
        INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, input, status, resting, priority,
            created_at, scheduled_at, completed_at)
        SELECT id, name, id, name, 0, '{{}}', status, CASE WHEN status = 'failed' THEN status END, 100, at,
            CASE WHEN n % 10 = 9 THEN at + interval '1000 days' ELSE at END,
            CASE WHEN status <> 'pending' THEN at END
        FROM (
            SELECT *, ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid AS id,
                now() - interval '100 days' + n * interval '1 second' AS at
            FROM ({KINDS} FROM generate_series(FIRST, LAST) AS n) AS kind
        ) AS job
        RETURNING id, type_name, status, priority, scheduled_at
    ), ready AS (
        INSERT INTO queuert_ready (type_name, priority, scheduled_at, id)
        SELECT type_name, priority, scheduled_at, id FROM made WHERE status = 'pending' AND scheduled_at <= now()
    )
    INSERT INTO queuert_later (type_name, scheduled_at, id, priority)
    SELECT type_name, scheduled_at, id, priority FROM made WHERE status = 'pending' AND scheduled_at > now()
"""
SQLITE = f"""
    WITH RECURSIVE counted (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM counted WHERE n < ?)
    INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, status, ready, priority, created_at,
        scheduled_at, completed_at, input)
    SELECT id, name, id, name, 0, status, CASE WHEN status = 'pending' THEN n % 10 < 9 END, 100, at,
        CASE WHEN n % 10 = 9 THEN at + 86400000000000 ELSE at END, CASE WHEN status <> 'pending' THEN at END, '{{}}'
    FROM (
        SELECT *, '01900000-0000-7000-8000-' || printf('%012x', n) AS id,
            (unixepoch() - 8640000 + n) * 1000000 AS at
        FROM ({KINDS} FROM counted)
    )
"""


class Place:
    """A database to be filled, and what reading it costs."""

    def __init__(self, url: str) -> None:
        self.url = url
        with connect_sync(url, jobs=[]):
            pass

    def fill(self, first: int, last: int) -> None:
        raise NotImplementedError

    def cost(self, look: Callable[[], object]) -> int:
        raise NotImplementedError


class Postgres(Place):
    def fill(self, first: int, last: int) -> None:
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(POSTGRES.replace("FIRST", str(first)).replace("LAST", str(last)).encode())
            connection.execute("VACUUM (ANALYZE)")

    def cost(self, look: Callable[[], object]) -> int:
        while True:
            before, vacuums = self._pages()
            look()
            after, then = self._pages()
            if then == vacuums:  # otherwise, autovacuum has read pages, too
                return after - before

    def _pages(self) -> tuple[int, int]:
        """Pages of tables and indexes that were asked for, and how often autovacuum has worked. A session tells them
        at its end at the latest.
        """
        with psycopg.connect(self.url, autocommit=True) as connection:
            deadline = time.monotonic() + PATIENCE
            others = (
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND backend_type IN ('client backend', 'autovacuum worker')"
            )
            while connection.execute(others).fetchone() != (1,):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            found = connection.execute(
                "SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0)), "
                "sum(autovacuum_count + autoanalyze_count) "
                "FROM pg_statio_user_tables JOIN pg_stat_user_tables USING (relid)"
            ).fetchone()
            assert found is not None
            pages, vacuums = found
            return int(pages), int(vacuums)


class Sqlite(Place):
    EVERY = 100
    """Steps of the virtual machine. A scan takes a few for each row."""

    def fill(self, first: int, last: int) -> None:
        with sqlite3.connect(self.url.removeprefix("sqlite:///"), isolation_level=None) as connection:
            connection.execute(SQLITE, [first, last])
        connection.close()

    def cost(self, look: Callable[[], object]) -> int:
        steps = 0
        connect: Any = sqlite3.connect

        def step() -> int:
            nonlocal steps
            steps += self.EVERY
            return 0

        def counting(*args: Any, **options: Any) -> Any:
            connection = connect(*args, **options)
            connection.set_progress_handler(step, self.EVERY)
            return connection

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sqlite3, "connect", counting)
            look()
        return steps


COMMANDS: dict[str, list[str]] = {
    "status": ["status"],
    "health": ["health", "--max-failed", "0"],
    "the latest": ["ls"],
    "by status": ["ls", "status:failed"],
    "by type and status": ["ls", "status:pending", "type:rare"],
    "completed of a type": ["ls", "status:completed", "type:rare"],
    "of the last hour": ["ls", "since:1h"],
    # Without a status, PostgreSQL sorts all pending jobs: docs/client.md tells that.
    "no such error": ["ls", "status:failed", "error:NONE"],
    "before all": ["ls", "status:completed", "ended:..2001-01-01T00:00Z"],
    "by id": ["show", ID.format(6)],
    "by beginning": ["show", "01900000-0000-7000-8000-000000000000"[:-1] + "6"],
    "why ready": ["why", ID.format(7)],
    "why failed": ["why", ID.format(6)],
    "doctor": ["doctor"],
}


def look_of_tail(url: str) -> None:
    async def look() -> None:
        async with queuert.connect(url, jobs=[], migrate=False, notify=None) as client:
            for words in ("", "status:failed", "type:rare status:completed"):
                follower = Follower(client, Filter.parse(words))
                await follower.begin(10)
                await follower.look()

    asyncio.run(look())


SIZES = [
    pytest.param(25_000, 75_000, id="few"),
    pytest.param(250_000, 1_000_000, id="a million", marks=[pytest.mark.soak, pytest.mark.timeout(3000)]),
]


@pytest.mark.drivers
@pytest.mark.parametrize(("some", "all_of_them"), SIZES)
def test_what_is_read_does_not_grow(url: str, some: int, all_of_them: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if all_of_them < 100_000:  # bounds that are reached with few jobs
        monkeypatch.setattr(status, "BOUND", 100)
        monkeypatch.setattr("queuert.operate.cli.commands.health.BOUND", 100)
        monkeypatch.setattr(ls, "SHORT_PAGES", 1)
        monkeypatch.setattr(doctor, "ROWS", 100)
    monkeypatch.setenv("QUEUERT_URL", url)
    place = Sqlite(url) if url.startswith("sqlite") else Postgres(url)
    looks: dict[str, Callable[[], object]] = {
        **{name: partial(in_process, *words) for name, words in COMMANDS.items()},
        "tail": partial(look_of_tail, url),
    }
    place.fill(1, some)
    assert in_process("doctor", "--full").code == 0, "the jobs are as ours are"
    before = {name: place.cost(look) for name, look in looks.items()}
    never = ("ls", "status:completed", "ended:..2001-01-01T00:00Z")
    assert in_process(*never) == Ended(0, "", ls.STOPPED)
    assert in_process(*never, "--all") == Ended(0, "no chain matches\n", "")
    place.fill(some + 1, all_of_them)
    after = {name: place.cost(look) for name, look in looks.items()}
    for name in looks:
        print(f"{name:22} {before[name]:>10,} {after[name]:>10,}")  # noqa: T201
    # Trees are higher, and pages are fuller or emptier.
    grown = {name: (before[name], after[name]) for name in looks if after[name] > 1.5 * before[name] + 500}
    assert grown == {}
