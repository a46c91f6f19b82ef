"""The queue that is stored with a running job, and what older versions have stored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.adapters.sqlite_support import Sqlite

from queuert.records.model import Claimed, ClaimRequest
from queuert_conformance.state.build import completed, given_back, new_job, put_back, queue, request


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Sqlite]:
    sqlite = Sqlite(tmp_path / "jobs.db")
    yield sqlite
    sqlite.adapter.close()


def claim(sqlite: Sqlite, wanted: ClaimRequest) -> list[Claimed]:
    return sqlite.do(sqlite.ops.claim(wanted)).jobs


def test_caps_count_what_an_older_version_runs_by_type(sqlite: Sqlite) -> None:
    sqlite.create(*(new_job(name) for name in "aabbbb"))
    assert len(claim(sqlite, request(queue("a")))) == 2
    sqlite.query("UPDATE queuert_job SET queue = NULL")  # as it leaves them
    stranger = request(queue("b", name="y", members=("b",), max_concurrency=1))
    assert len(claim(sqlite, stranger)) == 1, "no member of this queue"
    member = request(queue("b", name="x", members=("a", "b"), max_concurrency=3))
    assert len(claim(sqlite, member)) == 1


def test_only_running_jobs_have_a_queue(sqlite: Sqlite) -> None:
    """A queue that was left behind would count when an older version claims the job again."""
    sqlite.create(*(new_job("a") for _ in range(4)))
    one, two, three, four = claim(sqlite, request(queue("a", name="x")))
    assert sqlite.query("SELECT DISTINCT queue FROM queuert_job") == [("x",)]
    sqlite.do(sqlite.ops.settle([completed(one), put_back(two), given_back(three)]))
    sqlite.do(sqlite.ops.release("worker-1", []))
    assert sqlite.query("SELECT DISTINCT queue FROM queuert_job") == [(None,)]
    assert four.job.id in [each.job.id for each in claim(sqlite, request(queue("a", lease=0)))]
    sqlite.do(sqlite.ops.reap(["a"], [], 10, b"{}"))
    assert sqlite.query("SELECT DISTINCT queue FROM queuert_job") == [(None,)]
