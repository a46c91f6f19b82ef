"""Why a job is not running, on SQLite: what the question costs, counted in steps of SQLite's virtual machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters.sqlite_support import Sqlite, job

from queuert.records.model import BlockerRef
from queuert_conformance.state.registry import about

COPIES = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
    INSERT INTO queuert_job (id, type_name, chain_id, chain_type, chain_index, status, ready, priority, created_at,
        scheduled_at, input)
    SELECT 'copy-' || ? || n, 'a', 'copy-' || ? || n, 'a', 0, ?, ?, 100, 1, ?, '{}' FROM numbers
"""
NEVER = 2**52

AROUND = {
    "completed": ("completed", None, 1),
    "ready, of its type": ("pending", 1, 2),
    "future, of its type": ("pending", 0, NEVER),
    "blocked": ("blocked", None, 1),
}


def steps(sqlite: Sqlite, chain_id: str) -> int:
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    with sqlite.provider.transaction() as connection:
        connection.set_progress_handler(tick, 10)
        found = sqlite.do(sqlite.ops.circumstances(chain_id), connection)
        connection.set_progress_handler(None, 0)
    assert found is not None
    return count


def check(tmp_path: Path, number: int, kind: str) -> None:
    sqlite = Sqlite(tmp_path / "jobs.db")
    sqlite.do(sqlite.ops.register_worker("one", about=about("a", "b")))
    blockers = [job("b") for _ in range(3)]
    due = [job("a") for _ in range(150)]
    blocked = job("a", blockers=tuple(BlockerRef(each.id, "b") for each in blockers))
    sqlite.create(*blockers, *due, blocked)
    before = [steps(sqlite, each.id) for each in (due[-1], blocked)]
    status, ready, time = AROUND[kind]
    sqlite.query(COPIES, number, kind, kind, status, ready, time)
    after = [steps(sqlite, each.id) for each in (due[-1], blocked)]
    assert all(late <= early * 1.2 + 20 for early, late in zip(before, after, strict=True)), (before, after)


@pytest.mark.parametrize("kind", AROUND)
def test_ten_thousand_other_jobs(tmp_path: Path, kind: str) -> None:
    check(tmp_path, 10_000, kind)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", AROUND)
def test_a_million_other_jobs(tmp_path: Path, kind: str) -> None:
    check(tmp_path, 1_000_000, kind)
