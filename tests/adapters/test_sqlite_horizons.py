"""The file with a worker's horizon, and what is known without it."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.adapters.sqlite_support import ERROR, Sqlite, claim_of, job

from queuert.adapters.sqlite.horizons import Horizons
from queuert.adapters.sqlite.operations import SqliteOperations
from queuert.records.model import JobRow

WORKER = "worker"


@pytest.fixture
def boot(tmp_path: Path) -> Path:
    path = tmp_path / "boot"
    path.write_text("first\n")
    return path


@pytest.fixture
def database(tmp_path: Path) -> str:
    return str(tmp_path / "jobs.db")


def test_a_horizon_moves_forward(boot: Path, database: str) -> None:
    ours, others = Horizons(str(boot)), Horizons(str(boot))
    assert ours.create(database, WORKER)
    assert others.read(database, WORKER) == 0
    for horizon, expected in [(5, 5), (3, 5), (10**15, 10**15)]:
        assert ours.move(database, WORKER, horizon)
        assert others.read(database, WORKER) == expected


def test_creating_again_keeps_it(boot: Path, database: str) -> None:
    """By the same process, and by one that comes later."""
    horizons = Horizons(str(boot))
    horizons.create(database, WORKER)
    horizons.move(database, WORKER, 5)
    assert horizons.create(database, WORKER)
    assert horizons.read(database, WORKER) == 5
    later = Horizons(str(boot))
    assert later.create(database, WORKER)
    assert later.read(database, WORKER) == 5
    assert later.move(database, WORKER, 6)
    assert later.read(database, WORKER) == 6


def test_after_another_boot_it_says_nothing(boot: Path, database: str) -> None:
    Horizons(str(boot)).create(database, WORKER)
    boot.write_text("second\n")
    assert Horizons(str(boot)).read(database, WORKER) is None


@pytest.mark.parametrize("content", [b"", b"first", b"first x", b"\xff\xff 7", b"second 7"])
def test_a_file_that_is_damaged_says_nothing(boot: Path, database: str, content: bytes) -> None:
    horizons = Horizons(str(boot))
    horizons.create(database, WORKER)
    path = Path(f"{database}-horizon-{WORKER}")
    path.unlink()
    path.write_bytes(content)
    assert horizons.read(database, WORKER) is None
    assert horizons.create(database, WORKER)
    assert horizons.read(database, WORKER) == 0


def test_a_file_that_somebody_has_deleted(boot: Path, database: str) -> None:
    """Nothing is known until it is made again."""
    horizons = Horizons(str(boot))
    horizons.create(database, WORKER)
    horizons.remove(database, WORKER)
    assert horizons.move(database, WORKER, 5)
    assert horizons.read(database, WORKER) is None
    assert horizons.create(database, WORKER)
    assert horizons.move(database, WORKER, 6)
    assert horizons.read(database, WORKER) == 6


@pytest.mark.parametrize("worker", ["", "a/b", "..\0", "x" * 200, "ä"])
def test_names_that_no_file_can_have(boot: Path, database: str, worker: str) -> None:
    assert not Horizons(str(boot)).create(database, worker)


def test_where_there_cannot_be_a_file(boot: Path, tmp_path: Path) -> None:
    assert not Horizons(str(boot)).create("", WORKER)
    assert not Horizons(str(boot)).create(str(tmp_path / "missing" / "jobs.db"), WORKER)
    assert not Horizons(str(tmp_path / "no-proc")).create(str(tmp_path / "jobs.db"), WORKER)


@pytest.fixture
def sqlite(tmp_path: Path) -> Sqlite:
    return Sqlite(tmp_path / "jobs.db")


def reaped_attempts(sqlite: Sqlite) -> list[int]:
    """Three jobs with the ordinals 1 to 3, claimed by a worker whose leases end; the horizon is 1."""
    sqlite.do(sqlite.ops.register_worker(WORKER))
    sqlite.create(job(), job(), job())
    sqlite.do(sqlite.ops.claim(replace(claim_of(), at_once=0)))
    assert sqlite.do(sqlite.ops.move_horizon(WORKER, 1))
    return [row.attempt for row in reap(sqlite)]


def reap(sqlite: Sqlite) -> list[JobRow]:
    sqlite.clock.advance(1000)
    return sqlite.do(sqlite.ops.reap(["task"], [], 10, ERROR))


def test_a_move_asks_nothing_of_the_database(sqlite: Sqlite) -> None:
    sqlite.do(sqlite.ops.register_worker(WORKER))
    with sqlite.traced() as seen:
        assert sqlite.do(sqlite.ops.move_horizon(WORKER, 1))
    assert seen == []


def test_with_a_file(sqlite: Sqlite) -> None:
    assert reaped_attempts(sqlite) == [1, 0, 0]
    assert sqlite.do(sqlite.ops.forget_worker(WORKER))
    assert not list(sqlite.path.parent.glob("*horizon*"))


def test_without_a_file(sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is in the row."""
    monkeypatch.setattr(SqliteOperations, "horizons", Horizons("/missing"))
    assert reaped_attempts(sqlite) == [1, 0, 0]
    assert sqlite.query("SELECT horizon, has_file FROM queuert_worker") == [(1, 0)]


def test_a_file_that_the_reaper_cannot_read(sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything counts."""
    monkeypatch.setattr(Horizons, "read", lambda *_: None)
    assert reaped_attempts(sqlite) == [1, 1, 1]


def test_cleaning_removes_the_files(sqlite: Sqlite) -> None:
    sqlite.do(sqlite.ops.register_worker(WORKER))
    assert list(sqlite.path.parent.glob("*horizon*"))
    sqlite.clock.advance(10)
    assert sqlite.do(sqlite.ops.clean_workers(unseen_for=5)) == [WORKER]
    assert not list(sqlite.path.parent.glob("*horizon*"))
