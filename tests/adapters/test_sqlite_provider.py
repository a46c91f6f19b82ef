"""The sync provider: transactions, threads, and user code that breaks into them."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.sqlite_support import Sqlite, claim_of, job

from queuert.adapters.sql.statement import Statement
from queuert.adapters.sqlite.connections.database import Database
from queuert.errors import ClientClosed, SchemaMissing, StorageBusy, StorageError, TransactionMisused, TransactionNested


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Sqlite]:
    database = Sqlite(tmp_path / "jobs.db", busy_timeout=0.2)
    yield database
    database.adapter.close()


def in_thread(action: Callable[[], object]) -> BaseException | None:
    """Run something in a thread of its own; the error, if it ended with one."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return errors[0] if errors else None


def test_a_transaction_commits_at_its_end(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction() as connection:
        assert sqlite.provider.in_transaction(connection)
        sqlite.create(job(), connection=connection)
        assert sqlite.count() == 0
    assert sqlite.count() == 1
    assert not sqlite.provider.in_transaction(connection)


def test_an_error_rolls_a_transaction_back(sqlite: Sqlite) -> None:
    with pytest.raises(ZeroDivisionError) as caught, sqlite.provider.transaction() as connection:
        sqlite.create(job(), connection=connection)
        raise ZeroDivisionError
    assert sqlite.count() == 0
    assert not hasattr(caught.value, "__notes__")


def test_a_read_outside_does_not_see_the_open_transaction_of_its_own_thread(sqlite: Sqlite) -> None:
    new = job()
    with sqlite.provider.transaction() as connection:
        sqlite.create(new, connection=connection)
        assert sqlite.do(sqlite.ops.get_jobs([new.id])) == [None]
        assert sqlite.do(sqlite.ops.get_jobs([new.id]), connection) != [None]
    assert sqlite.job(new.id).status == "pending"


def test_a_second_transaction_or_write_in_one_thread_is_refused(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction():
        with pytest.raises(TransactionNested), sqlite.provider.transaction():
            pass
        with pytest.raises(TransactionNested):
            sqlite.create(job())
        with pytest.raises(TransactionNested):
            sqlite.do(sqlite.ops.trigger(["x"]))
    sqlite.create(job())


def test_another_thread_waits_for_the_lock_and_gives_up(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction():
        error = in_thread(lambda: sqlite.create(job()))
        assert isinstance(error, StorageBusy)
        assert isinstance(error.__cause__, sqlite3.OperationalError)
        assert in_thread(lambda: sqlite.do(sqlite.ops.get_jobs(["x"]))) is None
    assert in_thread(lambda: sqlite.create(job())) is None


def test_a_transaction_handed_to_another_thread_works_there(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction() as connection:
        assert in_thread(lambda: sqlite.create(job(), connection=connection)) is None
    assert sqlite.count() == 1


ENDINGS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "close": lambda connection: connection.close(),
    "with": lambda connection: connection.__exit__(None, None, None),
    "executescript": lambda connection: connection.executescript("CREATE TABLE mine (x)"),
    "COMMIT": lambda connection: connection.execute("COMMIT"),
    "commit and begin": lambda connection: [connection.execute(each) for each in ("COMMIT", "BEGIN")],
    "isolation_level": lambda connection: setattr(connection, "isolation_level", None),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_transaction_that_user_code_ended_is_noticed(sqlite: Sqlite, how: str) -> None:
    kept = how not in ("rollback", "close")
    with (
        pytest.raises(TransactionMisused, match="may be committed already"),
        sqlite.provider.transaction() as connection,
    ):
        sqlite.create(job(), connection=connection)
        ENDINGS[how](connection)
    assert sqlite.count() == kept
    sqlite.create(job())  # the provider goes on
    with sqlite.provider.transaction() as connection:
        sqlite.create(job(), connection=connection)
    assert sqlite.count() == kept + 2


@pytest.mark.parametrize("how", [how for how in ENDINGS if how != "commit and begin"])
def test_nothing_is_written_after_user_code_ended_the_transaction(sqlite: Sqlite, how: str) -> None:
    with pytest.raises(TransactionMisused), sqlite.provider.transaction() as connection:
        ENDINGS[how](connection)
        for program in (sqlite.ops.create_jobs([job()]), sqlite.ops.trigger(["x"]), sqlite.ops.get_jobs(["x"])):
            with pytest.raises(TransactionMisused, match="ended by code inside"):
                sqlite.do(program, connection)
    assert sqlite.count() == 0


@pytest.mark.parametrize("how", ENDINGS)
def test_an_error_after_user_code_ended_the_transaction_says_that_it_was_not_undone(sqlite: Sqlite, how: str) -> None:
    with pytest.raises(ZeroDivisionError) as caught, sqlite.provider.transaction() as connection:
        sqlite.create(job(), connection=connection)
        ENDINGS[how](connection)
        raise ZeroDivisionError
    assert "could not be rolled back" in caught.value.__notes__[0]
    sqlite.create(job())


@pytest.mark.parametrize("how", ENDINGS)
def test_a_savepoint_that_user_code_ended_is_noticed(sqlite: Sqlite, how: str) -> None:
    with pytest.raises(TransactionMisused), sqlite.provider.transaction() as connection:  # noqa: SIM117
        with pytest.raises(TransactionMisused, match="ended by code inside"), sqlite.provider.savepoint(connection):
            ENDINGS[how](connection)
    sqlite.create(job())


@pytest.mark.parametrize("what", ["close", "BEGIN", "BEGIN IMMEDIATE"])
def test_a_connection_that_somebody_kept_and_used_is_replaced(sqlite: Sqlite, what: str) -> None:
    def begin() -> None:
        with sqlite.provider.transaction() as connection:
            sqlite.create(job(), connection=connection)

    writes: list[Callable[[], None]] = [lambda: sqlite.create(job()), begin]
    for write in writes:
        with sqlite.provider.transaction() as kept:
            pass
        if what == "close":
            kept.close()
        else:
            kept.execute(what)
        write()
    assert sqlite.count() == 2


def test_an_error_rolls_a_savepoint_back(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction() as connection:
        sqlite.create(job(), connection=connection)
        with pytest.raises(ZeroDivisionError), sqlite.provider.savepoint(connection):
            sqlite.create(job(), connection=connection)
            with sqlite.provider.savepoint(connection):
                sqlite.create(job(), connection=connection)
            raise ZeroDivisionError
        with sqlite.provider.savepoint(connection):
            sqlite.create(job(), connection=connection)
    assert sqlite.count() == 2


def test_settings_of_one_user_do_not_reach_the_next(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction() as connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        sqlite.create(job(), connection=connection)
    with sqlite.provider.transaction() as again:
        assert again is connection
        assert again.row_factory is None
        assert again.execute("SELECT 'text'").fetchone() == ("text",)
        again.isolation_level = "DEFERRED"
    with sqlite.provider.transaction() as again:
        assert again.isolation_level is None


def test_errors_of_the_users_own_sql_are_not_touched(sqlite: Sqlite) -> None:
    with pytest.raises(sqlite3.OperationalError, match="no such table"), sqlite.provider.transaction() as connection:
        connection.execute("SELECT * FROM nobody")


def test_our_own_sql_errors_are_translated(tmp_path: Path) -> None:
    sqlite = Sqlite(tmp_path / "jobs.db", migrate=False)
    with pytest.raises(SchemaMissing, match=r"run client\.migrate\(\)") as caught:
        sqlite.do(sqlite.ops.get_jobs(["x"]))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    with pytest.raises(StorageError, match="syntax error"):
        sqlite.provider.execute(None, Statement("SELEKT", {}, writes=False))
    sqlite.adapter.close()


def test_the_connection_of_a_thread_goes_with_it(sqlite: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[sqlite3.Connection] = []
    connect = Database.connect

    def remember(database: Database, **options: Any) -> sqlite3.Connection:
        opened.append(connect(database, **options))
        return opened[-1]

    monkeypatch.setattr(Database, "connect", remember)
    for _ in range(3):
        assert in_thread(lambda: sqlite.create(job())) is None
    gc.collect()
    assert len(opened) == 3
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            connection.execute("SELECT 1")


def test_a_thread_uses_one_connection(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction() as first:
        pass
    sqlite.create(job())
    with sqlite.provider.transaction() as second:
        assert first is second


def test_close_closes_what_is_not_in_use_and_the_rest_when_it_is_done(sqlite: Sqlite) -> None:
    inside, closed = threading.Event(), threading.Event()
    seen: list[sqlite3.Connection] = []
    mine = sqlite.own_connection().__enter__()

    def hold() -> None:
        with sqlite.provider.transaction() as connection:
            seen.append(connection)
            connection.execute("CREATE TABLE held (x)")
            inside.set()
            closed.wait(45)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(45)
    sqlite.adapter.close()
    with pytest.raises(sqlite3.ProgrammingError):
        mine.execute("SELECT 1")
    assert seen[0].in_transaction
    closed.set()
    thread.join()
    with pytest.raises(sqlite3.ProgrammingError):
        seen[0].execute("SELECT 1")
    assert sqlite.query("SELECT * FROM held") == []


def test_a_closed_provider_says_so(sqlite: Sqlite) -> None:
    with sqlite.provider.transaction() as connection:
        pass
    sqlite.adapter.close()
    sqlite.adapter.close()
    actions: list[Callable[[], object]] = [
        lambda: sqlite.create(job()),
        lambda: sqlite.do(sqlite.ops.get_jobs(["x"])),
        lambda: sqlite.do(sqlite.ops.get_jobs(["x"]), connection),
        lambda: sqlite.provider.transaction().__enter__(),
        lambda: sqlite.provider.savepoint(connection),
        lambda: sqlite.provider.check(connection),
    ]
    for action in actions:
        with pytest.raises(ClientClosed):
            action()


def test_a_full_disk_loses_nothing_that_was_committed(sqlite: Sqlite) -> None:
    kept = job()
    sqlite.create(kept)
    with sqlite.own_connection() as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageError, match="no space left"):
        sqlite.create(*(job(input=b'"' + b"x" * 1000 + b'"') for _ in range(100)))
    assert sqlite.count() == 1
    assert sqlite.claim().jobs[0].job.id == kept.id


def test_claims_of_two_threads_never_share_a_job(sqlite: Sqlite) -> None:
    sqlite.create(*(job() for _ in range(200)))
    claimed: list[str] = []

    def claim() -> None:
        while jobs := sqlite.do(sqlite.ops.claim(claim_of(limit=7))).jobs:
            claimed.extend(each.job.id for each in jobs)

    threads = [threading.Thread(target=claim) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == len(set(claimed)) == 200
