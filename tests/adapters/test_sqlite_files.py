"""Database files: opening them, migrating them from several processes at once, and giving space back."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.sqlite_support import AsyncSqlite, Sqlite, job
from tests.support.code import Code

from queuert.adapters.sql.migrate import Migration, migrate
from queuert.adapters.sqlite import sqlite_state, sync_sqlite_state
from queuert.adapters.sqlite.connections import database
from queuert.adapters.sqlite.connections.errors import translate
from queuert.adapters.sqlite.operations.base import migrations_for, statements_for
from queuert.errors import (
    InvalidArgument,
    SchemaTooNew,
    StorageBusy,
    StorageError,
    StorageNotADatabase,
    StorageReadOnly,
    TransactionMisused,
)
from queuert.ports.provider import run

ALL = [migration.version for migration in migrations_for("queuert_")]
LATEST = ALL[-1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Callable[..., Sqlite]]:
    """Adapters on the file, without their tables; closed at the end."""
    adapters: list[Sqlite] = []

    def make(**options: Any) -> Sqlite:
        adapters.append(Sqlite(options.pop("path", path), migrate=False, **options))
        return adapters[-1]

    yield make
    for each in adapters:
        each.adapter.close()


# Opening


def test_making_an_adapter_touches_no_file(path: Path) -> None:
    sync_sqlite_state(path).close()
    sqlite_state(path)
    assert not path.exists()


def test_our_connections_are_durable_and_share_the_file(opened: Callable[..., Sqlite]) -> None:
    sqlite = opened(busy_timeout=1.5)
    sqlite.do(sqlite.ops.migrate())
    with sqlite.own_connection() as connection:
        settings = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "auto_vacuum")
        }
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 1500,
        "auto_vacuum": 2,
    }


@pytest.mark.parametrize("path", [":memory:", "file::memory:?cache=shared", "", "a\0b"])
def test_what_is_no_path_of_a_shared_file_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument, match="memory://" if "memory" in path else "cannot be"):
        sqlite_state(path)


@pytest.mark.parametrize("timeout", [-1, float("inf"), float("nan"), "5"])
def test_a_busy_timeout_is_a_number_of_seconds(path: Path, timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="busy_timeout"):
        sync_sqlite_state(path, busy_timeout=timeout)


def test_a_folder_is_no_database(opened: Callable[..., Sqlite], tmp_path: Path) -> None:
    sqlite = opened(path=tmp_path)
    with pytest.raises(StorageError, match="is a directory"):
        sqlite.do(sqlite.ops.migrate())


def test_a_missing_folder_is_named(opened: Callable[..., Sqlite], tmp_path: Path) -> None:
    sqlite = opened(path=tmp_path / "missing" / "jobs.db")
    with pytest.raises(StorageError, match=r"the folder .*missing does not exist"):
        sqlite.do(sqlite.ops.migrate())


def test_a_path_that_is_too_long(opened: Callable[..., Sqlite], tmp_path: Path) -> None:
    sqlite = opened(path=tmp_path / ("x" * 5000))
    with pytest.raises(StorageError, match="cannot be opened"):
        sqlite.do(sqlite.ops.migrate())


def test_a_file_that_is_no_database_stays_as_it_is(opened: Callable[..., Sqlite], path: Path) -> None:
    path.write_bytes(b"this is a letter, not a database" * 100)
    sqlite = opened()
    for program in (sqlite.ops.migrate(), sqlite.ops.get_jobs(["x"]), sqlite.ops.create_jobs([job()])):
        with pytest.raises(StorageNotADatabase) as caught:
            sqlite.do(program)
        assert isinstance(caught.value.__cause__, sqlite3.DatabaseError)
    assert path.read_bytes() == b"this is a letter, not a database" * 100


async def test_the_async_provider_reports_the_same_and_recovers(path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    state = AsyncSqlite(path)
    for _ in range(2):
        with pytest.raises(StorageNotADatabase):
            await state.do(state.ops.create_jobs([job()]))
        with pytest.raises(StorageNotADatabase):
            await state.do(state.ops.get_jobs(["x"]))
        with pytest.raises(StorageNotADatabase):
            async with state.provider.transaction():
                pass
    path.unlink()
    assert await state.do(state.ops.migrate()) == ALL
    await state.adapter.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written(opened: Callable[..., Sqlite], path: Path) -> None:
    path.touch()
    path.chmod(0o400)
    sqlite = opened()
    with pytest.raises(StorageReadOnly):
        sqlite.do(sqlite.ops.migrate())


def test_driver_errors_are_told_apart(path: Path) -> None:
    def error(code: int | None, message: str = "it broke") -> sqlite3.Error:
        made = sqlite3.OperationalError(message)
        if code is not None:
            made.sqlite_errorcode = code
        return made

    kinds = {
        sqlite3.SQLITE_BUSY: StorageBusy,
        sqlite3.SQLITE_BUSY_SNAPSHOT: StorageBusy,
        sqlite3.SQLITE_LOCKED: StorageBusy,
        sqlite3.SQLITE_READONLY_DBMOVED: StorageReadOnly,
        sqlite3.SQLITE_NOTADB: StorageNotADatabase,
        sqlite3.SQLITE_IOERR_FSYNC: StorageError,
        sqlite3.SQLITE_FULL: StorageError,
        sqlite3.SQLITE_CORRUPT: StorageError,
        sqlite3.SQLITE_CANTOPEN: StorageError,
        None: TransactionMisused,
    }
    for code, kind in kinds.items():
        assert type(translate(error(code), str(path))) is kind


def test_an_old_sqlite_is_refused(opened: Callable[..., Sqlite], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 37, 2))
    sqlite = opened()
    with pytest.raises(StorageError, match=r"SQLite 3\.38\.0 or newer"):
        sqlite.do(sqlite.ops.migrate())


def test_a_file_without_a_write_ahead_log_is_refused(
    opened: Callable[..., Sqlite], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_journal_mode", lambda *_: "delete")
    sqlite = opened()
    with pytest.raises(StorageError, match="write-ahead log"):
        sqlite.do(sqlite.ops.migrate())


def test_a_file_that_somebody_holds_while_its_journal_is_to_change(opened: Callable[..., Sqlite], path: Path) -> None:
    """SQLite itself does not wait then."""
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("CREATE TABLE mine (x)")
    holder.execute("BEGIN EXCLUSIVE")
    impatient, patient = opened(busy_timeout=0.05), opened(busy_timeout=20)
    with pytest.raises(StorageBusy):
        impatient.do(impatient.ops.migrate())
    release = threading.Timer(0.05, holder.execute, ["COMMIT"])
    release.start()
    assert patient.do(patient.ops.migrate()) == ALL
    release.join()
    holder.close()


# Migrations


def test_a_database_is_migrated_once(opened: Callable[..., Sqlite]) -> None:
    sqlite = opened()
    assert sqlite.do(sqlite.ops.migrate()) == ALL
    assert sqlite.do(sqlite.ops.migrate()) == []
    with sqlite.provider.transaction() as connection:
        assert sqlite.do(sqlite.ops.migrate(), connection) == []


def test_an_up_to_date_database_is_not_locked_to_find_that_out(opened: Callable[..., Sqlite]) -> None:
    sqlite, other = opened(busy_timeout=0), opened(busy_timeout=0)
    sqlite.do(sqlite.ops.migrate())
    with other.provider.transaction():
        assert sqlite.do(sqlite.ops.migrate()) == []


def test_a_users_own_database_keeps_what_it_has(opened: Callable[..., Sqlite], path: Path) -> None:
    user = sqlite3.connect(path, isolation_level=None)
    user.execute("CREATE TABLE job (x)")
    user.execute("INSERT INTO job VALUES ('mine')")
    user.close()
    sqlite = opened()
    assert sqlite.do(sqlite.ops.migrate()) == ALL
    assert sqlite.query("SELECT * FROM job") == [("mine",)]


def test_a_newer_schema_is_left_alone(opened: Callable[..., Sqlite]) -> None:
    sqlite = opened()
    sqlite.do(sqlite.ops.migrate())
    sqlite.query(f"INSERT INTO queuert_version VALUES ({LATEST + 2}, {LATEST}, 0)")
    assert sqlite.do(sqlite.ops.migrate()) == [], "it says that this version still works"
    sqlite.query(f"INSERT INTO queuert_version VALUES ({LATEST + 3}, {LATEST + 1}, 0)")
    with pytest.raises(SchemaTooNew) as caught:
        sqlite.do(sqlite.ops.migrate())
    error = caught.value
    assert (error.found, error.known, error.oldest) == (LATEST + 3, LATEST, LATEST + 1)


def test_a_database_of_version_2_is_brought_up_to_date_and_still_serves_it(opened: Callable[..., Sqlite]) -> None:
    """Its libraries refuse whatever is above 2 in the table that they know: it stays as it is."""
    sqlite = opened()
    for migration in migrations_for("queuert_")[:2]:
        for statement in migration.statements:
            sqlite.query(statement)
    sqlite.query("CREATE TABLE queuert_migration (version INTEGER PRIMARY KEY, applied_at INTEGER NOT NULL) STRICT")
    sqlite.query("INSERT INTO queuert_migration VALUES (1, 0), (2, 0)")
    assert sqlite.do(sqlite.ops.migrate()) == ALL[2:]
    assert sqlite.do(sqlite.ops.migrate()) == []
    assert sqlite.query("SELECT max(version) FROM queuert_migration") == [(2,)]
    sqlite.create(job())
    assert sqlite.query("SELECT status FROM queuert_jobs") == [("pending",)]


def test_a_migration_that_fails_leaves_whole_versions_and_goes_on_later(opened: Callable[..., Sqlite]) -> None:
    sqlite = opened()
    good = migrations_for("queuert_")
    bad = Migration(2, 1, (("CREATE TABLE half (x)", "CREATE TABLE half (x)"),))
    with pytest.raises(StorageError, match="already exists"):
        sqlite.do(migrate([good[0], bad], statements_for("queuert_"), applied_at=0))
    assert sqlite.query("SELECT version FROM queuert_version") == [(1,)]
    assert sqlite.query("SELECT * FROM sqlite_schema WHERE name = 'half'") == []
    assert sqlite.do(sqlite.ops.migrate()) == ALL[1:]


def test_a_version_that_somebody_else_applied_meanwhile_is_passed_over(opened: Callable[..., Sqlite]) -> None:
    slow, fast = opened(), opened()
    program = slow.ops.migrate()
    command = next(program)  # the look, before anything is locked
    command = program.send(slow.provider.execute(None, command))
    assert fast.do(fast.ops.migrate()) == ALL
    # What the slow one goes on with finds everything done.
    with slow.provider.transaction() as connection:
        assert run(slow.provider, connection, command.program) == []


MIGRATE = """
import sys
from queuert.adapters.sqlite import sync_sqlite_state
from queuert.ports.provider import run
state = sync_sqlite_state(sys.argv[1])
sys.stdin.readline()
print(run(state.provider, None, state.operations.migrate()))
"""

KILL = """
import os, signal, sqlite3, sys
from queuert.adapters.sqlite import sync_sqlite_state
from queuert.adapters.sqlite.connections import session
from queuert.ports.provider import run
execute, left = session.execute, int(sys.argv[2])
def dying(*arguments):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return execute(*arguments)
session.execute = dying
state = sync_sqlite_state(sys.argv[1])
run(state.provider, None, state.operations.migrate())
"""


def test_processes_that_start_together_migrate_once(path: Path, opened: Callable[..., Sqlite]) -> None:
    processes = [Code(MIGRATE, str(path)) for _ in range(4)]
    for process in processes:
        process.write("")
    ends = [process.end() for process in processes]
    assert [code for code, _ in ends] == [0] * 4
    applied = [version for _, output in ends for version in json.loads(output)]
    assert sorted(applied) == ALL
    sqlite = opened()
    assert sqlite.do(sqlite.ops.migrate()) == []


@pytest.mark.parametrize("statements", [0, 3, 8, 12, 15, 18])
def test_a_process_that_is_killed_leaves_whole_versions(
    path: Path, opened: Callable[..., Sqlite], statements: int
) -> None:
    assert Code(KILL, str(path), str(statements)).end()[0] == -9
    sqlite = opened()
    has_table = bool(sqlite.query("SELECT 1 FROM sqlite_schema WHERE name = 'queuert_version'"))
    versions = [row[0] for row in sqlite.query("SELECT version FROM queuert_version")] if has_table else []
    assert sqlite.do(sqlite.ops.migrate()) == ALL[len(versions) :]
    sqlite.create(job())
    assert len(sqlite.claim().jobs) == 1


# Space


def _full_then_empty(sqlite: Sqlite) -> None:
    sqlite.do(sqlite.ops.migrate())
    jobs = [job(input=b'"' + b"x" * 2000 + b'"') for _ in range(3000)]
    sqlite.create(*jobs)
    sqlite.do(sqlite.ops.delete_chains([each.id for each in jobs], cascade=False))


def test_vacuum_gives_space_back(opened: Callable[..., Sqlite], path: Path) -> None:
    sqlite = opened()
    _full_then_empty(sqlite)
    (before,) = sqlite.query("PRAGMA page_count")[0]
    vacuumed = sqlite.do(sqlite.ops.vacuum())
    assert vacuumed.gained > vacuumed.before * 0.9
    assert sqlite.query("PRAGMA freelist_count") == [(0,)]
    assert sqlite.query("PRAGMA page_count")[0][0] < before / 10
    assert path.stat().st_size < 1_000_000


async def test_vacuum_beside_a_reader_waits_for_nobody(opened: Callable[..., Sqlite], path: Path) -> None:
    sqlite = opened()
    _full_then_empty(sqlite)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM queuert_job").fetchone()
    state = AsyncSqlite(path)
    await state.do(state.ops.vacuum())
    assert sqlite.query("PRAGMA freelist_count") == [(0,)]
    await state.adapter.close()
    reader.close()


def test_vacuum_of_a_database_that_was_made_without_it_does_nothing(opened: Callable[..., Sqlite], path: Path) -> None:
    user = sqlite3.connect(path, isolation_level=None)
    user.execute("PRAGMA auto_vacuum = NONE")
    user.execute("CREATE TABLE mine (x)")
    user.close()
    sqlite = opened()
    _full_then_empty(sqlite)
    sqlite.do(sqlite.ops.vacuum())
    assert sqlite.query("PRAGMA freelist_count") != [(0,)]
