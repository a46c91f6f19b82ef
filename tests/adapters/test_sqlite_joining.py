"""The caller's own connections: what works in their transactions, and what the errors say when it cannot."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.sqlite_support import AsyncSqlite, Sqlite, claim_of, job

from queuert.errors import ClientClosed, StorageReadOnly, TransactionMisused


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Sqlite]:
    database = Sqlite(tmp_path / "jobs.db", busy_timeout=0.2)
    yield database
    database.adapter.close()


@pytest.fixture
def mine(sqlite: Sqlite) -> Iterator[sqlite3.Connection]:
    """A connection as the standard library makes it: it begins transactions by itself, deferred ones."""
    connection = sqlite3.connect(sqlite.path, timeout=0.2)
    connection.execute("CREATE TABLE orders (number)")
    yield connection
    connection.close()


def test_jobs_commit_with_the_callers_transaction(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.execute("BEGIN IMMEDIATE")
    sqlite.provider.check(mine)
    mine.execute("INSERT INTO orders VALUES (1)")
    sqlite.create(job(), connection=mine)
    assert sqlite.count() == 0
    mine.commit()
    assert not sqlite.provider.in_transaction(mine)
    assert sqlite.count() == 1


def test_jobs_roll_back_with_the_callers_transaction(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.execute("BEGIN IMMEDIATE")
    sqlite.create(job(), connection=mine)
    mine.rollback()
    assert sqlite.count() == 0


def test_a_deferred_transaction_that_has_written_is_as_good(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.execute("INSERT INTO orders VALUES (1)")  # the driver begins a deferred transaction
    sqlite.provider.check(mine)
    sqlite.create(job(), connection=mine)
    mine.commit()
    assert sqlite.count() == 1


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_transaction_without_the_write_lock_is_refused_always(
    sqlite: Sqlite, mine: sqlite3.Connection, reads_first: bool
) -> None:
    """Not only when somebody else happens to write."""
    mine.execute("BEGIN")
    if reads_first:
        mine.execute("SELECT * FROM orders").fetchall()
    sqlite.provider.check(mine)
    with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"):
        sqlite.create(job(), connection=mine)
    with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"):
        sqlite.do(sqlite.ops.trigger(["x"]), mine)
    with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"), sqlite.provider.savepoint(mine):
        pass
    assert sqlite.do(sqlite.ops.get_jobs(["x"]), mine) == [None]  # reading needs no lock


@pytest.mark.parametrize("writes_still", [False, True])
def test_a_transaction_that_lost_the_race_for_the_write_lock_is_told_so(
    sqlite: Sqlite, mine: sqlite3.Connection, writes_still: bool
) -> None:
    mine.execute("BEGIN")
    mine.execute("SELECT * FROM orders").fetchall()
    other = sqlite3.connect(sqlite.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("INSERT INTO orders VALUES (2)")
    if writes_still:
        with pytest.raises(TransactionMisused, match="another connection writes") as caught:
            sqlite.create(job(), connection=mine)
        assert isinstance(caught.value.__cause__, sqlite3.OperationalError)
    else:
        other.execute("COMMIT")
        with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"):
            sqlite.create(job(), connection=mine)
    other.close()


def test_without_a_transaction_nothing_is_done(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    with pytest.raises(TransactionMisused, match="no transaction is open"):
        sqlite.provider.check(mine)
    for program in (sqlite.ops.create_jobs([job()]), sqlite.ops.trigger(["x"]), sqlite.ops.get_jobs(["x"])):
        with pytest.raises(TransactionMisused, match="no transaction is open"):
            sqlite.do(program, mine)
    assert not mine.in_transaction  # the driver was not led to begin one
    assert sqlite.count() == 0


def test_how_the_caller_set_up_the_connection_makes_no_difference(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.row_factory = sqlite3.Row
    mine.text_factory = bytes
    mine.execute("PRAGMA foreign_keys = OFF")
    mine.execute("BEGIN IMMEDIATE")
    sqlite.provider.check(mine)
    new = job("größe")
    sqlite.create(new, connection=mine)
    (row,) = sqlite.do(sqlite.ops.get_jobs([new.id]), mine)
    assert row is not None
    assert (row.id, row.type_name, row.input) == (new.id, "größe", b"{}")
    assert len(sqlite.do(sqlite.ops.claim(claim_of("größe")), mine).jobs) == 1
    deleted = sqlite.do(sqlite.ops.delete_chains([new.id], cascade=True), mine)
    assert len(deleted.chains) == 1
    assert mine.row_factory is sqlite3.Row
    assert mine.text_factory is bytes
    mine.commit()
    assert sqlite.count() == 0


def test_a_connection_without_autocommit_is_joined_after_its_first_write(sqlite: Sqlite) -> None:
    for level in ("DEFERRED", "IMMEDIATE", "EXCLUSIVE", None):
        connection = sqlite3.connect(sqlite.path, isolation_level=level)
        if level is None:
            connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE queuert_token SET last = last")
        sqlite.create(job(), connection=connection)
        connection.commit()
        connection.close()
    assert sqlite.count() == 4


def test_what_is_no_usable_connection_is_refused(sqlite: Sqlite, mine: sqlite3.Connection, tmp_path: Path) -> None:
    anything: Any = object()
    with pytest.raises(TransactionMisused, match=r"expected a sqlite3\.Connection, got builtins.object"):
        sqlite.provider.check(anything)
    closed = sqlite3.connect(sqlite.path)
    closed.close()
    with pytest.raises(TransactionMisused, match="closed"):
        sqlite.provider.check(closed)
    assert not sqlite.provider.in_transaction(closed)
    with pytest.raises(TransactionMisused, match="no transaction is open"):
        sqlite.create(job(), connection=closed)
    for elsewhere in (sqlite3.connect(":memory:"), sqlite3.connect(tmp_path / "other.db")):
        elsewhere.execute("BEGIN IMMEDIATE")
        with pytest.raises(TransactionMisused, match="the jobs live in"):
            sqlite.provider.check(elsewhere)
        elsewhere.close()


def test_a_connection_of_another_thread_is_refused(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.execute("BEGIN IMMEDIATE")
    errors: list[BaseException] = []

    def join() -> None:
        actions: list[Callable[[], None]] = [
            lambda: sqlite.provider.check(mine),
            lambda: sqlite.create(job(), connection=mine),
        ]
        for action in actions:
            try:
                action()
            except TransactionMisused as error:
                errors.append(error)

    thread = threading.Thread(target=join)
    thread.start()
    thread.join()
    assert len(errors) == 2
    assert all("thread" in str(error) for error in errors)


def test_the_same_file_by_another_name_is_the_same(sqlite: Sqlite, tmp_path: Path) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(sqlite.path)
    connection = sqlite3.connect(link, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    sqlite.provider.check(connection)
    sqlite.create(job(), connection=connection)
    connection.execute("COMMIT")
    connection.close()
    assert sqlite.count() == 1


def test_a_failed_operation_leaves_the_callers_transaction_usable(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    taken = job()
    sqlite.create(taken)
    mine.execute("BEGIN IMMEDIATE")
    mine.execute("INSERT INTO orders VALUES (1)")
    with pytest.raises(Exception, match="already exists"):
        sqlite.create(job(), taken, connection=mine)
    sqlite.create(job(), connection=mine)
    mine.commit()
    assert sqlite.count() == 2
    assert mine.execute("SELECT number FROM orders").fetchall() == [(1,)]


def test_a_savepoint_in_the_callers_transaction(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.execute("BEGIN IMMEDIATE")
    with sqlite.provider.savepoint(mine):
        sqlite.create(job(), connection=mine)
        with pytest.raises(ZeroDivisionError), sqlite.provider.savepoint(mine):
            sqlite.create(job(), connection=mine)
            raise ZeroDivisionError
    mine.commit()
    assert sqlite.count() == 1


def test_a_savepoint_that_user_code_ended_is_noticed(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.execute("BEGIN IMMEDIATE")
    with pytest.raises(TransactionMisused, match="ended by code inside"), sqlite.provider.savepoint(mine):
        mine.commit()
    mine.execute("BEGIN IMMEDIATE")
    with pytest.raises(ZeroDivisionError) as caught, sqlite.provider.savepoint(mine):
        mine.commit()
        raise ZeroDivisionError
    assert "could not be rolled back" in caught.value.__notes__[0]


def test_a_connection_that_may_only_read(sqlite: Sqlite) -> None:
    connection = sqlite3.connect(f"file:{sqlite.path}?mode=ro", uri=True, isolation_level=None)
    connection.execute("BEGIN")
    other = sqlite3.connect(sqlite.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")  # so that the write itself is reached
    with pytest.raises(StorageReadOnly, match="cannot be written"):
        sqlite.do(sqlite.ops.trigger(["x"]), connection)
    connection.close()
    other.close()


def test_a_closed_provider_joins_nothing(sqlite: Sqlite, mine: sqlite3.Connection) -> None:
    mine.execute("BEGIN IMMEDIATE")
    sqlite.adapter.close()
    with pytest.raises(ClientClosed):
        sqlite.provider.check(mine)
    with pytest.raises(ClientClosed):
        sqlite.create(job(), connection=mine)


async def test_the_async_provider_uses_a_joined_connection_on_its_own_thread(
    sqlite: Sqlite, mine: sqlite3.Connection
) -> None:
    state = AsyncSqlite(sqlite.path)
    mine.execute("BEGIN")
    with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"):
        await state.do(state.ops.create_jobs([job()]), mine)
    mine.execute("ROLLBACK")
    mine.execute("BEGIN IMMEDIATE")
    state.provider.check(mine)
    async with state.provider.savepoint(mine):
        await state.do(state.ops.create_jobs([job()]), mine)
    with pytest.raises(ZeroDivisionError):
        async with state.provider.savepoint(mine):
            await state.do(state.ops.create_jobs([job()]), mine)
            raise ZeroDivisionError
    assert len((await state.do(state.ops.claim(claim_of()), mine)).jobs) == 1
    mine.commit()
    assert not state.provider.in_transaction(mine)
    assert sqlite.count() == 1
    await state.adapter.close()
