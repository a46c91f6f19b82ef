"""Cancellation at every await: no connection is lost, none goes back inside a transaction, COMMIT runs to its end.

The backend is stopped by a signal, so that whatever is said to it next is under way for as long as the test wants.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import asyncpg
import pytest
from tests.adapters.postgres.drivers import ASYNC_DRIVERS, Driver, Watcher, statement
from tests.behaviour.steps import Gate
from tests.support.postgres import Databases, PostgresServer

from queuert.adapters.postgres.drivers.asyncpg import AsyncpgProvider
from queuert.adapters.waiting import ON_LOOP

SLEEP = statement("SELECT pg_sleep(90)")
PID = statement("SELECT pg_backend_pid()")


def insert(number: int) -> Any:
    return statement("INSERT INTO t VALUES ($1::int)", number)


@pytest.fixture(params=ASYNC_DRIVERS, ids=str)
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture(params=["own", "pool", "connection"])
async def subject(request: pytest.FixtureRequest, driver: Driver, database_url: str, watch: Watcher) -> Any:
    """A provider of one connection; afterwards it must be able to give it out, fresh and idle."""
    async with driver.pool(database_url, 1) as pool:
        connection = await driver.connect(database_url)
        sources = {"own": database_url, "pool": pool, "connection": connection}
        options: dict[str, Any] = {"max_size": 1, "timeout": 30} if request.param == "own" else {}
        provider = driver.provider(sources[request.param], **options)
        yield provider
        async with asyncio.timeout(45):
            async with provider.transaction() as inside:
                await provider.execute(inside, statement("SELECT 1"))
            await provider.execute(None, statement("SELECT 1"))
        while request.param == "pool" and driver.in_pool(pool) != 1:
            await asyncio.sleep(0.01)
        assert watch.others("state LIKE 'idle in transaction%'") == []
        await provider.close()
        await driver.close(connection)


@contextmanager
def stopped(postgres: Databases, pid: int) -> Generator[None]:
    """The backend does not answer inside the block."""
    if not isinstance(postgres, PostgresServer):
        pytest.skip("only a server of our own can be stopped")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def pid_of(provider: Any) -> int:
    ((pid,),) = await provider.execute(None, PID)
    return int(pid)


async def cancelled(task: asyncio.Task[Any], times: int = 1) -> None:
    """Cancel a task that is in the middle of something, and again while it cleans up."""
    await asyncio.sleep(0.05)
    assert not task.done()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0.02)


async def ended(task: asyncio.Task[Any]) -> None:
    async with asyncio.timeout(45):
        with pytest.raises(asyncio.CancelledError):
            await task


twice = pytest.mark.parametrize("times", [1, 2])


@twice
async def test_a_statement_that_stands_alone(subject: Any, watch: Watcher, times: int) -> None:
    task = asyncio.create_task(subject.execute(None, SLEEP))
    await watch.until("query LIKE '%pg_sleep(90)%' AND state = 'active'")
    await cancelled(task, times)
    await ended(task)
    # The request to cancel is on its way when the task ends: the server needs a moment, but no thirty seconds.
    await watch.until_gone("query LIKE '%pg_sleep(90)%' AND state = 'active'")


@twice
async def test_a_statement_that_nobody_answers(subject: Any, postgres: Databases, times: int) -> None:
    """The server hears of the cancellation before it hears of the statement, which is then waited for."""
    with stopped(postgres, await pid_of(subject)):
        task = asyncio.create_task(subject.execute(None, statement("SELECT pg_sleep(0.3)")))
        await cancelled(task, times)
    await ended(task)


@twice
async def test_a_statement_in_a_transaction(subject: Any, watch: Watcher, times: int) -> None:
    async def work() -> None:
        async with subject.transaction() as inside:
            await subject.execute(inside, insert(1))
            await subject.execute(inside, SLEEP)

    task = asyncio.create_task(work())
    await watch.until("query LIKE '%pg_sleep(90)%' AND state = 'active'")
    await cancelled(task, times)
    await ended(task)
    assert watch("SELECT n FROM t") == []


@twice
async def test_a_statement_in_a_savepoint_leaves_the_transaction_usable(
    subject: Any, watch: Watcher, times: int
) -> None:
    reached = asyncio.Event()

    async def work() -> None:
        async with subject.transaction() as inside:
            await subject.execute(inside, insert(1))
            try:
                async with subject.savepoint(inside):
                    await subject.execute(inside, insert(2))
                    await subject.execute(inside, SLEEP)
            except asyncio.CancelledError:
                reached.set()
            await subject.execute(inside, insert(3))

    task = asyncio.create_task(work())
    await watch.until("query LIKE '%pg_sleep(90)%' AND state = 'active'")
    task.cancel()
    if times == 2:
        task.cancel()
    await task
    assert reached.is_set()
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]


@twice
async def test_begin(subject: Any, postgres: Databases, times: int) -> None:
    entered = False

    async def work() -> None:
        nonlocal entered
        async with subject.transaction():
            entered = True

    with stopped(postgres, await pid_of(subject)):
        task = asyncio.create_task(work())
        await cancelled(task, times)
    await ended(task)
    assert not entered


async def test_no_alarm_outlives_the_rollback_that_it_was_for(
    database_url: str, watch: Watcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BEGIN was cancelled, and so is the ROLLBACK after it. Later, the user goes on with the same connection."""

    class Alarm:
        def __init__(self, ring: Callable[[], object]) -> None:
            self.ring = ring
            self.armed = True

        def cancel(self) -> None:
            self.armed = False

    def alarm(seconds: float, ring: Callable[[], object]) -> Alarm:
        alarms.append(Alarm(ring))
        return alarms[-1]

    async def gated(connection: Any, query: str, *args: Any, **options: Any) -> str:
        if query == "ROLLBACK":
            await gate()
        return await execute(connection, query, *args, **options)

    async def work() -> None:
        async with AsyncpgProvider(connection).transaction(SLEEP):
            pass

    alarms, gate, execute = list[Alarm](), Gate(), asyncpg.Connection.execute
    monkeypatch.setattr(ON_LOOP, "alarm", alarm)
    monkeypatch.setattr(asyncpg.Connection, "execute", gated)
    connection = await asyncpg.connect(database_url)
    task = asyncio.create_task(work())
    await watch.until("query LIKE '%pg_sleep(90)%' AND state = 'active'")
    task.cancel()
    await gate.arrival()
    task.cancel()
    gate.open()
    await ended(task)
    assert alarms
    for each in alarms:  # its time has come
        if each.armed:
            each.ring()
    assert not connection.is_closed()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


@twice
async def test_commit_runs_to_its_end(subject: Any, postgres: Databases, watch: Watcher, times: int) -> None:
    written = asyncio.Event()
    go_on = asyncio.Event()
    pids: list[int] = []

    async def work() -> None:
        async with subject.transaction() as inside:
            ((pid,),) = await subject.execute(inside, PID)
            pids.append(pid)
            await subject.execute(inside, insert(1))
            written.set()
            await go_on.wait()

    task = asyncio.create_task(work())
    await written.wait()
    with stopped(postgres, pids[0]):
        go_on.set()
        await cancelled(task, times)
        assert not task.done()
    await ended(task)
    assert watch("SELECT n FROM t") == [1]


@twice
async def test_a_slow_commit_runs_to_its_end(subject: Any, watch: Watcher, times: int) -> None:
    watch(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$"
    )
    watch("SELECT pg_advisory_lock(1)")
    watch(
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slow()"
    )

    async def work() -> None:
        async with subject.transaction() as inside:
            await subject.execute(inside, insert(1))

    task = asyncio.create_task(work())
    await watch.until("query LIKE '%COMMIT' AND state = 'active'")
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    watch("SELECT pg_advisory_unlock(1)")
    await ended(task)
    assert watch("SELECT n FROM t") == [1]


@twice
async def test_rollback_runs_to_its_end(subject: Any, postgres: Databases, watch: Watcher, times: int) -> None:
    written = asyncio.Event()
    go_on = asyncio.Event()
    pids: list[int] = []

    async def work() -> None:
        async with subject.transaction() as inside:
            ((pid,),) = await subject.execute(inside, PID)
            pids.append(pid)
            await subject.execute(inside, insert(1))
            written.set()
            await go_on.wait()
            raise RuntimeError

    task = asyncio.create_task(work())
    await written.wait()
    with stopped(postgres, pids[0]):
        go_on.set()
        await cancelled(task, times)
        assert not task.done()
    await ended(task)
    assert watch("SELECT n FROM t") == []


@pytest.mark.parametrize("step", ["save", "release", "undo"])
@twice
async def test_savepoints(subject: Any, postgres: Databases, watch: Watcher, step: str, times: int) -> None:
    """The step runs to its end; then the cancellation is heard, and everything is rolled back."""
    arrived = asyncio.Event()
    go_on = asyncio.Event()
    pids: list[int] = []

    async def work() -> None:
        async with subject.transaction() as inside:
            ((pid,),) = await subject.execute(inside, PID)
            pids.append(pid)
            await subject.execute(inside, insert(1))
            if step == "save":
                arrived.set()
                await go_on.wait()
            async with subject.savepoint(inside):
                await subject.execute(inside, insert(2))
                arrived.set()
                await go_on.wait()
                if step == "undo":
                    raise RuntimeError

    task = asyncio.create_task(work())
    await arrived.wait()
    with stopped(postgres, pids[0]):
        go_on.set()
        await cancelled(task, times)
    await ended(task)
    assert watch("SELECT n FROM t") == []


@twice
async def test_the_users_transaction_survives_a_cancelled_savepoint(
    driver: Driver, database_url: str, watch: Watcher, times: int
) -> None:
    provider = driver.provider(database_url)
    connection = await driver.connect(database_url)

    async def work() -> None:
        async with provider.savepoint(connection):
            await provider.execute(connection, insert(2))
            await provider.execute(connection, SLEEP)

    async with driver.block(connection):
        await provider.execute(connection, insert(1))
        task = asyncio.create_task(work())
        await watch.until("query LIKE '%pg_sleep(90)%' AND state = 'active'")
        await cancelled(task, times)
        await ended(task)
        await provider.execute(connection, insert(3))
    assert watch("SELECT n FROM t ORDER BY n") == [1, 3]
    await driver.close(connection)
    await provider.close()


async def test_waiting_for_a_connection(subject: Any, watch: Watcher) -> None:
    async with subject.transaction() as inside:
        waiting = [asyncio.create_task(subject.execute(None, insert(1))) for _ in range(3)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        for task in waiting:
            await ended(task)
        await subject.execute(inside, insert(2))
    assert watch("SELECT n FROM t") == [2]


@pytest.mark.parametrize("turns", range(12))
async def test_a_connection_that_arrives_together_with_the_cancellation(subject: Any, turns: int) -> None:
    """However many turns of the loop lie between the two, the connection is not lost."""
    release = asyncio.Event()

    async def hold() -> None:
        async with subject.transaction():
            held.set()
            await release.wait()

    async def want() -> None:
        async with subject.transaction():
            pass

    held = asyncio.Event()
    holder = asyncio.create_task(hold())
    await held.wait()
    waiter = asyncio.create_task(want())
    await asyncio.sleep(0.02)
    release.set()
    if turns >= 6:
        await holder
    for _ in range(turns % 6):
        await asyncio.sleep(0)
    waiter.cancel()
    await holder
    await asyncio.wait([waiter])


@pytest.mark.parametrize("milliseconds", [0, 1, 2, 3, 5, 8, 13])
async def test_at_any_moment(subject: Any, watch: Watcher, milliseconds: int) -> None:
    """Many at once, cancelled wherever they are; whoever ended well is committed."""
    done: list[int] = []

    async def work(number: int) -> None:
        async with subject.transaction() as inside:
            await subject.execute(inside, insert(number))
            async with subject.savepoint(inside):
                await subject.execute(inside, insert(-number))
        done.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(1, 11)]
    await asyncio.sleep(milliseconds / 1000)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks, timeout=45)
    assert all(task.done() for task in tasks)
    stored = set(watch("SELECT n FROM t"))
    assert stored >= set(done) | {-number for number in done}
    assert stored == {-number for number in stored}, "all of it, or nothing"


async def test_close_waits_for_what_is_being_committed(driver: Driver, database_url: str, watch: Watcher) -> None:
    provider = driver.provider(database_url)
    async with provider.transaction() as inside:
        await provider.execute(inside, insert(1))
        closing = asyncio.create_task(provider.close())
        await asyncio.sleep(0.02)
    await closing
    assert watch("SELECT n FROM t") == [1]
    await watch.until_gone()


async def test_the_loop_is_not_blocked(driver: Driver, provider: Any) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await provider.execute(None, statement("SELECT pg_sleep(0.3)"))
    async with provider.transaction() as inside:
        await provider.execute(inside, statement("SELECT pg_sleep(0.3)"))
    ticking.cancel()
    assert ticks > 20
