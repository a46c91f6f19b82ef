"""What happened to jobs, in a file that processes of the version before use, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.adapters.sqlite_support import Sqlite

from queuert.records.history import DAY, FINE
from queuert_conformance.state.build import completed, new_job, request

OLD_ADD = """
    INSERT INTO queuert_history (grain, at, type_name, what, bucket, number, seconds)
    SELECT 60, at, type_name, what, bucket, 5, 1.0 FROM queuert_history WHERE what = 'completed'
    ON CONFLICT (grain, at, type_name, what, bucket) DO UPDATE SET
        number = number + excluded.number, seconds = seconds + excluded.seconds
"""
OLD_COARSER = """
    INSERT INTO queuert_history (grain, at, type_name, what, bucket, number, seconds)
    SELECT 3600, at / 3600 * 3600, type_name, what, bucket, sum(number), sum(seconds)
    FROM queuert_history WHERE grain = 60 GROUP BY 2, 3, 4, 5
"""
OLD_STEPS = "SELECT what, bucket, sum(number) FROM queuert_history GROUP BY 1, 2 HAVING sum(number) <> 0"
"""As version 14 writes, merges and reads."""


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    return Sqlite(tmp_path / "jobs.db")


def work_once(sqlite: Sqlite) -> None:
    sqlite.do(sqlite.ops.create_jobs([new_job()]))
    (claim,) = sqlite.do(sqlite.ops.claim(request())).jobs
    assert sqlite.do(sqlite.ops.settle([completed(claim)])).applied == [True]


def numbers(sqlite: Sqlite) -> tuple[int, int]:
    """Completed jobs, and how many of them are known in fine buckets."""
    tallies = [each for each in sqlite.do(sqlite.ops.history(DAY, float(DAY))).tallies if each.what == "completed"]
    fine = sum(each.number for each in tallies if each.bucket >= FINE)
    return sum(each.number for each in tallies if each.bucket < FINE), fine


def execute(sqlite: Sqlite, text: str) -> None:
    with sqlite.provider.transaction() as connection:
        connection.execute(text)


def test_an_older_process_writes_and_reads_beside_us(sqlite: Sqlite) -> None:
    """It counts in the few buckets that it knows, and leaves the fine ones alone."""
    work_once(sqlite)
    work_once(sqlite)
    assert numbers(sqlite) == (2, 2)
    execute(sqlite, OLD_ADD)
    assert numbers(sqlite) == (7, 2)
    read = sqlite.query(OLD_STEPS)
    assert sum(number for what, _, number in read if what == "completed") == 7
    sqlite.adapter.close()


def test_what_an_older_process_makes_coarser_loses_its_fine_buckets_only(sqlite: Sqlite) -> None:
    work_once(sqlite)
    execute(sqlite, OLD_COARSER)
    execute(sqlite, "DELETE FROM queuert_history WHERE grain = 60")
    assert numbers(sqlite) == (1, 0)
    work_once(sqlite)
    assert numbers(sqlite) == (2, 1)
    sqlite.adapter.close()
