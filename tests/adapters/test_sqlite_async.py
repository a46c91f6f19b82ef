"""The async provider: turns on the writing connection, cancellation at every point, and user code that breaks in."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.adapters.sqlite_support import AsyncSqlite, Sqlite, claim_of, job
from tests.adapters.test_sqlite_provider import ENDINGS

from queuert.adapters.sqlite import AsyncSqliteProvider
from queuert.adapters.sqlite.connections import session
from queuert.errors import ClientClosed, StorageBusy, StorageUnavailable, TransactionMisused, TransactionNested
from queuert.ports.provider import TimeLimit, Upkeep

IMPATIENT = pytest.mark.parametrize("busy_timeout", [0.3])


@pytest.fixture
def busy_timeout() -> float:
    """Nobody gives up, unless the test says so."""
    return 60.0


@pytest.fixture
async def state(tmp_path: Path, busy_timeout: float) -> AsyncIterator[AsyncSqlite]:
    adapter = AsyncSqlite(tmp_path / "jobs.db", busy_timeout=busy_timeout)
    await adapter.do(adapter.ops.migrate())
    yield adapter
    await adapter.adapter.close()


@pytest.fixture
def outside(tmp_path: Path, state: AsyncSqlite) -> Sqlite:
    """Somebody else on the same file, another process for instance."""
    return Sqlite(tmp_path / "jobs.db", migrate=False)


class Gate:
    """Holds a call in the provider's thread until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, *, times: int = 1) -> None:
        self.reached = asyncio.Event()
        self.opened = threading.Event()
        self.left = times
        self._loop = asyncio.get_running_loop()
        original: Callable[..., Any] = getattr(session, name)

        def gated(*arguments: Any) -> Any:
            if self.left:
                self.left -= 1
                self._loop.call_soon_threadsafe(self.reached.set)
                assert self.opened.wait(45)
            return original(*arguments)

        monkeypatch.setattr(session, name, gated)


async def start(state: AsyncSqlite) -> None:
    """A transaction of its own that stores a job: it only succeeds if nobody has left a lock behind."""
    async with state.provider.transaction() as connection:
        await state.do(state.ops.create_jobs([job()]), connection)


async def test_a_transaction_commits_with_what_the_user_wrote_on_its_connection(
    state: AsyncSqlite, outside: Sqlite
) -> None:
    async with state.provider.transaction() as connection:
        assert isinstance(connection, sqlite3.Connection)
        connection.execute("CREATE TABLE orders (number)")
        await state.do(state.ops.create_jobs([job()]), connection)
        connection.execute("INSERT INTO orders VALUES (1)")
        assert state.provider.in_transaction(connection)
        assert outside.count() == 0
    assert outside.count() == 1
    assert outside.query("SELECT * FROM orders") == [(1,)]


async def test_an_error_rolls_back(state: AsyncSqlite, outside: Sqlite) -> None:
    with pytest.raises(ZeroDivisionError):
        async with state.provider.transaction() as connection:
            await state.do(state.ops.create_jobs([job()]), connection)
            raise ZeroDivisionError
    assert outside.count() == 0


async def test_savepoints(state: AsyncSqlite, outside: Sqlite) -> None:
    async with state.provider.transaction() as connection:
        async with state.provider.savepoint(connection):
            await state.do(state.ops.create_jobs([job()]), connection)
        with pytest.raises(ZeroDivisionError):
            async with state.provider.savepoint(connection):
                await state.do(state.ops.create_jobs([job()]), connection)
                raise ZeroDivisionError
    assert outside.count() == 1


async def test_reads_outside_a_transaction_go_on_beside_it(state: AsyncSqlite) -> None:
    new = job()
    async with state.provider.transaction() as connection:
        await state.do(state.ops.create_jobs([new]), connection)
        reads = [state.do(state.ops.get_jobs([new.id])) for _ in range(20)]
        assert await asyncio.gather(*reads) == [[None]] * 20
    assert await state.do(state.ops.get_jobs([new.id])) != [None]


async def test_a_second_transaction_or_write_in_one_task_is_refused(state: AsyncSqlite) -> None:
    async with state.provider.transaction():
        with pytest.raises(TransactionNested):
            await start(state)
        with pytest.raises(TransactionNested):
            await state.do(state.ops.create_jobs([job()]))
    await start(state)


async def test_tasks_take_turns_in_their_order(state: AsyncSqlite) -> None:
    order: list[int] = []

    async def turn(number: int) -> None:
        async with state.provider.transaction():
            order.append(number)

    async with state.provider.transaction():
        tasks = [asyncio.create_task(turn(number)) for number in range(10)]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == list(range(10))


@IMPATIENT
async def test_a_task_that_waits_too_long_gives_up(state: AsyncSqlite) -> None:
    async with state.provider.transaction():
        for work in (start(state), state.do(state.ops.create_jobs([job()]))):
            with pytest.raises(StorageBusy, match="of this process"):
                await asyncio.create_task(work)
    await start(state)


@IMPATIENT
async def test_a_lock_held_by_another_process_ends_in_an_error_too(state: AsyncSqlite, outside: Sqlite) -> None:
    with outside.provider.transaction():
        with pytest.raises(StorageBusy):
            await start(state)
        with pytest.raises(StorageBusy):
            await state.do(state.ops.create_jobs([job()]))
        with pytest.raises(StorageBusy):
            await state.do(state.ops.trigger(["x"]))
    await start(state)


@IMPATIENT
async def test_a_write_that_was_given_up_is_waited_for_by_the_task_that_gave_it_up(
    state: AsyncSqlite, outside: Sqlite
) -> None:
    """Its thread still waits for the other process. That is a busy database, not a nested transaction."""
    write = next(state.ops.create_jobs([job()]))
    with outside.provider.transaction():
        with pytest.raises(StorageUnavailable, match="did not answer within"):
            await cast("Upkeep", state.provider).execute_within(TimeLimit(seconds=0.001), write)
        with pytest.raises(StorageBusy):
            await start(state)
    await start(state)
    assert outside.count() == 1


# Cancellation


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelled_while_waiting_for_the_turn(state: AsyncSqlite, outside: Sqlite) -> None:
    async with state.provider.transaction():
        waiting = [asyncio.create_task(start(state)) for _ in range(3)]
        await asyncio.sleep(0)
        await cancel(waiting[1])
    await asyncio.gather(waiting[0], waiting[2])
    assert outside.count() == 2


async def test_cancelled_in_the_moment_the_turn_comes(state: AsyncSqlite, outside: Sqlite) -> None:
    async with state.provider.transaction():
        waiting = [asyncio.create_task(start(state)) for _ in range(2)]
        await asyncio.sleep(0)
    waiting[0].cancel()  # the lock has been handed to it, but it has not run since
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    await waiting[1]
    assert outside.count() == 1


async def test_cancelled_while_begin_waits_in_the_thread(
    state: AsyncSqlite, outside: Sqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, "begin")
    task = asyncio.create_task(start(state))
    await gate.reached.wait()
    await cancel(task)  # at once, although the thread is still busy
    following = asyncio.create_task(start(state))
    await asyncio.sleep(0)
    gate.opened.set()
    await following
    assert outside.count() == 1


async def test_cancelled_while_begin_waits_for_another_process(state: AsyncSqlite, outside: Sqlite) -> None:
    with outside.provider.transaction():
        task = asyncio.create_task(start(state))
        await asyncio.sleep(0.01)
        await cancel(task)
    await start(state)
    assert outside.count() == 1


async def test_cancelled_in_a_statement(state: AsyncSqlite, outside: Sqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "execute")
    clean: list[int] = []

    async def work() -> None:
        async with state.provider.transaction() as connection:
            try:
                await state.do(state.ops.create_jobs([job()]), connection)
            finally:
                # The user's own clean-up finds the connection at rest.
                clean.append(connection.execute("SELECT count(*) FROM queuert_job").fetchone()[0])

    task = asyncio.create_task(work())
    await gate.reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()  # again: it still waits for the thread
    await asyncio.sleep(0)
    assert not task.done()
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clean == [1]
    assert outside.count() == 0
    await start(state)


async def test_cancelled_between_statements(state: AsyncSqlite, outside: Sqlite) -> None:
    reached = asyncio.Event()

    async def work() -> None:
        async with state.provider.transaction() as connection, state.provider.savepoint(connection):
            await state.do(state.ops.create_jobs([job()]), connection)
            reached.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await reached.wait()
    await cancel(task)
    assert outside.count() == 0
    await start(state)


@pytest.mark.parametrize(("name", "stored"), [("commit", 1), ("roll_back", 0), ("save", 0), ("release", 0)])
async def test_cancelled_where_a_block_begins_or_ends(
    state: AsyncSqlite, outside: Sqlite, monkeypatch: pytest.MonkeyPatch, name: str, stored: int
) -> None:
    gate = Gate(monkeypatch, name)

    async def work() -> None:
        async with state.provider.transaction() as connection:
            if name in ("save", "release"):
                async with state.provider.savepoint(connection):
                    pass
            await state.do(state.ops.create_jobs([job()]), connection)
            if name == "roll_back":
                raise ZeroDivisionError

    task = asyncio.create_task(work())
    await gate.reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    gate.opened.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert outside.count() == stored
    await start(state)
    assert outside.count() == stored + 1


@pytest.mark.parametrize(("name", "stored"), [("execute", 0), ("commit", 1)])
async def test_a_write_outside_a_transaction_is_undone_unless_it_has_reached_its_commit(
    state: AsyncSqlite, outside: Sqlite, monkeypatch: pytest.MonkeyPatch, name: str, stored: int
) -> None:
    gate = Gate(monkeypatch, name)
    task = asyncio.create_task(state.do(state.ops.create_jobs([job()])))
    await gate.reached.wait()
    await cancel(task)
    following = asyncio.create_task(start(state))
    await asyncio.sleep(0)
    gate.opened.set()
    await following
    assert outside.count() == stored + 1


async def test_a_cancelled_read_disturbs_nobody(state: AsyncSqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "execute")
    task = asyncio.create_task(state.do(state.ops.get_jobs(["x"])))
    await gate.reached.wait()
    await cancel(task)
    gate.opened.set()
    assert await state.do(state.ops.get_jobs(["x"])) == [None]
    await start(state)


async def test_every_point_of_cancellation_leaves_the_provider_usable(state: AsyncSqlite, outside: Sqlite) -> None:
    async def work() -> None:
        async with state.provider.transaction() as connection, state.provider.savepoint(connection):
            await state.do(state.ops.create_jobs([job()]), connection)
        await state.do(state.ops.claim(claim_of()))

    for turns in range(40):
        task = asyncio.create_task(work())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        async with state.provider.transaction() as connection:
            assert connection.in_transaction
    assert outside.query("PRAGMA integrity_check") == [("ok",)]


# User code that breaks in


@pytest.mark.parametrize("how", ENDINGS)
async def test_a_transaction_that_user_code_ended_is_noticed(state: AsyncSqlite, outside: Sqlite, how: str) -> None:
    kept = how not in ("rollback", "close")
    with pytest.raises(TransactionMisused, match="may be committed already"):
        async with state.provider.transaction() as connection:
            await state.do(state.ops.create_jobs([job()]), connection)
            ENDINGS[how](connection)
    assert outside.count() == kept
    await start(state)
    assert outside.count() == kept + 1


@pytest.mark.parametrize("how", ENDINGS)
async def test_an_error_after_user_code_ended_the_transaction(state: AsyncSqlite, how: str) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        async with state.provider.transaction() as connection, state.provider.savepoint(connection):
            await state.do(state.ops.create_jobs([job()]), connection)
            ENDINGS[how](connection)
            raise ZeroDivisionError
    assert "could not be rolled back" in caught.value.__notes__[0]
    await start(state)


@pytest.mark.parametrize("how", [how for how in ENDINGS if how != "commit and begin"])
async def test_nothing_is_written_after_user_code_ended_the_transaction(
    state: AsyncSqlite, outside: Sqlite, how: str
) -> None:
    with pytest.raises(TransactionMisused):
        async with state.provider.transaction() as connection:
            ENDINGS[how](connection)
            for program in (state.ops.create_jobs([job()]), state.ops.trigger(["x"])):
                with pytest.raises(TransactionMisused, match="ended by code inside"):
                    await state.do(program, connection)
    assert outside.count() == 0


@pytest.mark.parametrize("what", ["close", "BEGIN", "BEGIN IMMEDIATE"])
async def test_a_connection_that_somebody_kept_and_used_is_replaced(
    state: AsyncSqlite, outside: Sqlite, what: str
) -> None:
    works: list[Callable[[], Awaitable[object]]] = [
        lambda: state.do(state.ops.create_jobs([job()])),
        lambda: start(state),
    ]
    for work in works:
        async with state.provider.transaction() as kept:
            pass
        if what == "close":
            kept.close()
        else:
            kept.execute(what)
        await work()
    assert outside.count() == 2


# The end


async def test_a_closed_provider_says_so(state: AsyncSqlite) -> None:
    async with state.provider.transaction() as connection:
        pass
    await state.adapter.close()
    await state.adapter.close()
    with pytest.raises(ClientClosed):
        await start(state)
    with pytest.raises(ClientClosed):
        await state.do(state.ops.get_jobs(["x"]))
    with pytest.raises(ClientClosed):
        await state.do(state.ops.create_jobs([job()]))
    with pytest.raises(ClientClosed):
        state.provider.check(connection)


async def test_close_rolls_back_a_transaction_that_is_open_and_wakes_who_waits(
    state: AsyncSqlite, outside: Sqlite
) -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        async with state.provider.transaction() as connection:
            await state.do(state.ops.create_jobs([job()]), connection)
            reached.set()
            await go_on.wait()

    task = asyncio.create_task(work())
    await reached.wait()
    waiting = asyncio.create_task(start(state))
    await asyncio.sleep(0)
    await state.adapter.close()
    go_on.set()
    for each in (task, waiting):
        with pytest.raises(ClientClosed):
            await each
    assert outside.count() == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("queuert-sqlite")]


async def test_close_while_a_begin_was_given_up(state: AsyncSqlite, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, "begin")
    task = asyncio.create_task(start(state))
    await gate.reached.wait()
    closing = asyncio.create_task(state.adapter.close())
    await asyncio.sleep(0)
    await cancel(task)
    gate.opened.set()
    await closing


def test_one_provider_serves_one_event_loop_after_the_other(tmp_path: Path) -> None:
    state = AsyncSqlite(tmp_path / "jobs.db")

    async def use() -> None:
        await asyncio.gather(start(state), start(state), state.do(state.ops.get_jobs(["x"])))

    asyncio.run(state.do(state.ops.migrate()))
    asyncio.run(use())
    asyncio.run(use())
    asyncio.run(state.adapter.close())


async def test_the_sync_provider_beside_it_reaches_the_same_jobs(state: AsyncSqlite) -> None:
    await start(state)
    sync = state.adapter.sync_provider
    assert sync is not None
    assert isinstance(state.provider, AsyncSqliteProvider)
    with sync.transaction() as connection:
        assert connection.execute("SELECT count(*) FROM queuert_job").fetchone() == (1,)
