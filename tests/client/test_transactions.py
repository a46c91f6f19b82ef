"""Transactions: jobs commit with the caller's own writes or not at all, and nothing is announced before."""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.jobs import Greet, Nothing
from tests.support.worlds import World, start, status_of

from queuert.base.transaction import Transaction
from queuert.client.client import Client
from queuert.engine.transaction import OpenTransaction
from queuert.errors import (
    InvalidArgument,
    TransactionClosed,
    TransactionMisused,
    TransactionNested,
    TransactionRequired,
)

pytestmark = pytest.mark.drivers

Mutation = Callable[[Client[Any], Any], Any]


async def _enter(block: Any) -> None:
    async with block:
        pass


MUTATIONS: dict[str, Mutation] = {
    "start": lambda client, tx: client.start(tx, Greet()),
    "start_many": lambda client, tx: client.start_many(tx, [Greet()]),
    "trigger": lambda client, tx: client.trigger(tx, "x"),
    "cancel": lambda client, tx: client.cancel(tx, "x"),
    "retry": lambda client, tx: client.retry(tx, "x"),
    "delete": lambda client, tx: client.delete(tx, "x"),
    "take_over": lambda client, tx: _enter(client.take_over(tx, "x")),
    "savepoint": lambda client, tx: _enter(client.savepoint(tx)),
}


# client.transaction()


async def test_jobs_and_the_callers_writes_commit_together(client: Client[Any], world: World) -> None:
    if world.database == "memory":
        pytest.skip("a memory store holds nothing but jobs")
    async with client.transaction() as tx:
        tx.connection.execute("CREATE TABLE orders (id INTEGER)")
        tx.connection.execute("INSERT INTO orders VALUES (7)")
        chain = await client.start(tx, Greet())
        assert tx.is_open

    assert await status_of(client, chain) == "pending"
    async with client.transaction() as tx:
        assert tx.connection.execute("SELECT id FROM orders").fetchall() == [(7,)]


async def test_an_error_takes_the_callers_writes_with_it(client: Client[Any], world: World) -> None:
    if world.database == "memory":
        pytest.skip("a memory store holds nothing but jobs")
    async with client.transaction() as tx:
        tx.connection.execute("CREATE TABLE orders (id INTEGER)")
    before = world.snapshot()
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            tx.connection.execute("INSERT INTO orders VALUES (7)")
            await client.start(tx, Greet())
            raise ZeroDivisionError
    assert (world.snapshot(), world.heard) == (before, [])


async def test_an_error_rolls_back_and_nothing_is_announced(client: Client[Any], world: World) -> None:
    before = world.snapshot()
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            await client.start_many(tx, [Greet(), Nothing()])
            raise ZeroDivisionError
    assert (world.snapshot(), world.heard) == (before, [])
    await start(client, Greet())
    assert world.count() == 1


async def test_uncommitted_work_is_seen_inside_only(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        chain = await client.start(tx, Greet())
        inside = await client.get_chain(chain, tx=tx)
        assert inside is not None
        assert inside.status == "pending"
        assert [job.id for job in (await client.list_jobs(tx=tx)).items] == [chain.id]
        assert [each.id for each in (await client.list_chains(tx=tx)).items] == [chain.id]
        assert [job.id for job in (await client.list_chain_jobs(chain, tx=tx)).items] == [chain.id]
        assert [stats.job_type for stats in await client.stats(tx=tx)] == ["greet"]
        assert await client.get_job(chain.id, tx=tx) is not None
        assert await client.get_chain(chain) is None
        assert (await client.list_jobs()).items == []
    assert await status_of(client, chain) == "pending"


@pytest.mark.parametrize("given", [None, "tx", 7, object()], ids=["None", "str", "int", "object"])
async def test_mutations_require_a_transaction(client: Client[Any], world: World, given: Any) -> None:
    before = world.snapshot()
    for operation, call in MUTATIONS.items():
        needs = rf"{operation}\(\) needs a Transaction .*client\.transaction\(\)"
        with pytest.raises(TransactionRequired, match=needs):
            await call(client, given)
    assert world.snapshot() == before


@pytest.mark.parametrize(
    ("call", "instead"),
    [
        (lambda client: client.start(Greet()), "submit(job)"),
        (lambda client: client.start(Greet(), after=5), "submit(job)"),
        (lambda client: client.start(job=Greet()), "submit(job)"),
        (lambda client: client.start(), "submit(job)"),
        (lambda client: client.start(None, Greet()), "submit(job)"),
        (lambda client: client.start_many([Greet()]), "submit_many(jobs)"),
        (lambda client: client.start_many(jobs=[Greet()]), "submit_many(jobs)"),
    ],
    ids=["start", "with options", "by name", "nothing", "None", "start_many", "start_many by name"],
)
async def test_a_start_without_a_transaction_says_what_needs_none(
    client: Client[Any], world: World, call: Any, instead: str
) -> None:
    before = world.snapshot()
    with pytest.raises(TransactionRequired, match=r"open one with client\.transaction\(\)") as caught:
        await call(client)
    assert f"client.{instead} needs none" in str(caught.value)
    assert world.snapshot() == before
    async with client.transaction() as tx:
        await client.start(tx=tx, job=Greet())
        await client.start_many(tx, jobs=[Greet()])


async def test_a_connection_is_no_transaction(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        with pytest.raises(TransactionRequired, match="after_commit"):
            await client.start(tx.connection, Greet())


@pytest.mark.parametrize("operation", MUTATIONS)
async def test_mutations_after_the_end_are_refused(client: Client[Any], world: World, operation: str) -> None:
    async with client.transaction() as tx:
        pass
    before = world.snapshot()
    with pytest.raises(TransactionClosed, match=r"client\.transaction\(\)"):
        await MUTATIONS[operation](client, tx)
    assert world.snapshot() == before


async def test_reads_and_the_connection_after_the_end_are_refused(client: Client[Any]) -> None:
    async with client.transaction() as tx:
        chain = await client.start(tx, Greet())
    assert not tx.is_open
    with pytest.raises(TransactionClosed):
        _ = tx.connection
    with pytest.raises(TransactionClosed):
        await client.get_chain(chain, tx=tx)
    with pytest.raises(TransactionClosed):
        await client.list_jobs(tx=tx)


async def test_a_transaction_that_failed_is_closed_too(client: Client[Any]) -> None:
    opened: list[Transaction[Any]] = []
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            opened.append(tx)
            raise ZeroDivisionError
    with pytest.raises(TransactionClosed):
        await client.start(opened[0], Greet())


@pytest.mark.parametrize("given", ["tx", 7, object()], ids=["str", "int", "object"])
async def test_reads_take_nothing_but_a_transaction(client: Client[Any], given: Any) -> None:
    with pytest.raises(InvalidArgument, match="tx= takes a Transaction"):
        await client.list_jobs(tx=given)
    with pytest.raises(InvalidArgument, match="tx= takes a Transaction"):
        await client.get_chain("x", tx=given)


async def test_a_nested_transaction_is_refused_and_the_outer_one_goes_on(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        await client.start(tx, Greet())
        for _ in range(2):
            with pytest.raises(TransactionNested, match=r"savepoint"):
                async with client.transaction():
                    raise AssertionError("a second transaction was opened")
        await client.start(tx, Greet())
    assert world.count() == 2
    async with client.transaction() as tx:
        await client.start(tx, Greet())
    assert world.count() == 3


async def test_a_transaction_after_one_that_failed_is_not_nested(client: Client[Any]) -> None:
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            async with client.transaction():
                raise ZeroDivisionError
    assert (await start(client, Greet())).status == "pending"


async def test_a_transaction_of_another_client_is_refused(client: Client[Any], world: World) -> None:
    async with world.client() as other, other.transaction() as tx:
        with pytest.raises(TransactionMisused, match="another client"):
            await client.start(tx, Greet())
        with pytest.raises(TransactionMisused, match="another client"):
            await client.get_chain("x", tx=tx)
    assert world.count() == 0


async def test_two_tasks_take_turns(world: World) -> None:
    if not world.is_async:
        pytest.skip("tasks are for the async client")
    async with world.client() as client:
        inside, order = asyncio.Event(), list[str]()

        async def first() -> None:
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                inside.set()
                await asyncio.sleep(0)
                order.append("first")

        async def second() -> None:
            await inside.wait()
            async with client.transaction() as tx:
                order.append("second")
                await client.start(tx, Greet())

        await asyncio.gather(first(), second())
        assert order == ["first", "second"]
    assert world.count() == 2


async def test_threads_take_turns(world: World) -> None:
    if world.is_async:
        pytest.skip("threads are for the sync client")
    async with world.client() as client:
        sync: Any = client.sync  # type: ignore[attr-defined]
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(10):
                    with sync.transaction() as tx:
                        sync.start(tx, Greet())
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert failures == []
    assert world.count() == 40
    assert len(world.heard) == 40


async def test_a_cancelled_task_leaves_nothing_behind_and_the_next_one_can_write(world: World) -> None:
    if not world.is_async:
        pytest.skip("tasks are for the async client")
    async with world.client() as client:
        inside = asyncio.Event()

        async def hang() -> None:
            async with client.transaction() as tx:
                await client.start(tx, Greet())
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(hang())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (world.count(), world.heard) == (0, [])
        await start(client, Greet())
    assert world.count() == 1


async def test_a_task_cancelled_while_it_waits_for_its_turn_leaves_the_turn_to_others(world: World) -> None:
    if not world.is_async:
        pytest.skip("tasks are for the async client")
    async with world.client() as client:
        async with client.transaction() as tx:
            waiting = asyncio.create_task(start(client, Nothing()))
            for _ in range(10):
                await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            await client.start(tx, Greet())
        await start(client, Greet())
        assert world.count() == 2


# Savepoints


async def test_a_failed_savepoint_drops_its_jobs_and_their_announcements(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        kept = await client.start(tx, Greet())
        with pytest.raises(ZeroDivisionError):
            async with client.savepoint(tx):
                await client.start(tx, Nothing())
                await client.cancel(tx, kept)
                raise ZeroDivisionError
        assert [chain.id for chain in (await client.list_chains(tx=tx)).items] == [kept.id]
    assert world.heard == [("job_scheduled", "greet")]
    assert world.count() == 1
    assert await status_of(client, kept) == "pending"


async def test_a_savepoint_that_ends_well_keeps_everything(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx:
        async with client.savepoint(tx):
            await client.start(tx, Nothing())
        await client.start(tx, Greet())
    assert world.heard == [("job_scheduled", "nothing"), ("job_scheduled", "greet")]
    assert world.count() == 2


async def test_savepoints_nest(client: Client[Any], world: World) -> None:
    async with client.transaction() as tx, client.savepoint(tx):
        await client.start(tx, Greet())
        with pytest.raises(ZeroDivisionError):
            async with client.savepoint(tx):
                await client.start(tx, Nothing())
                async with client.savepoint(tx):
                    await client.start(tx, Nothing())
                raise ZeroDivisionError
    assert world.heard == [("job_scheduled", "greet")]
    assert world.count() == 1


async def test_a_savepoint_takes_the_callers_writes_back(client: Client[Any], world: World) -> None:
    if world.database == "memory":
        pytest.skip("a memory store holds nothing but jobs")
    async with client.transaction() as tx:
        tx.connection.execute("CREATE TABLE orders (id INTEGER)")
        tx.connection.execute("INSERT INTO orders VALUES (1)")
        with pytest.raises(ZeroDivisionError):
            async with client.savepoint(tx):
                tx.connection.execute("INSERT INTO orders VALUES (2)")
                raise ZeroDivisionError
        assert tx.connection.execute("SELECT id FROM orders").fetchall() == [(1,)]


async def test_a_savepoint_in_a_rolled_back_transaction_announces_nothing(client: Client[Any], world: World) -> None:
    with pytest.raises(ZeroDivisionError):
        async with client.transaction() as tx:
            async with client.savepoint(tx):
                await client.start(tx, Greet())
            raise ZeroDivisionError
    assert (world.count(), world.heard) == (0, [])


# client.after_commit(connection)


async def test_joining_a_transaction_of_the_callers_own(client: Client[Any], world: World) -> None:
    own = world.connection()
    async with client.after_commit(own.raw) as tx:
        assert tx.connection is own.raw
        own.begin()
        own.write(7)
        chain = await client.start(tx, Greet())
        assert await client.get_chain(chain) is None
        assert (await client.get_chain(chain, tx=tx)) == chain
        own.commit()
        assert world.heard == []
    assert world.heard == [("job_scheduled", "greet")]
    assert await status_of(client, chain) == "pending"
    own.close()
    with pytest.raises(TransactionClosed):
        _ = tx.connection


async def test_joined_jobs_go_with_the_callers_rollback(client: Client[Any], world: World) -> None:
    own = world.connection()
    before = world.snapshot()
    with pytest.raises(ZeroDivisionError):
        async with client.after_commit(own.raw) as tx:
            own.begin()
            own.write(7)
            await client.start(tx, Greet())
            own.roll_back()
            raise ZeroDivisionError
    own.close()
    assert (world.snapshot(), world.heard) == (before, [])


async def test_leaving_while_the_transaction_is_open_is_an_error(client: Client[Any], world: World) -> None:
    own = world.connection()
    opened: list[Transaction[Any]] = []
    with pytest.raises(TransactionMisused, match=r"with client\.after_commit\(connection\) as tx, <your transaction>"):
        async with client.after_commit(own.raw) as tx:
            opened.append(tx)
            own.begin()
            await client.start(tx, Greet())
    assert world.heard == []
    with pytest.raises(TransactionClosed):
        await client.start(opened[0], Greet())
    # The transaction is the caller's: it was neither committed nor rolled back for him.
    own.commit()
    assert world.count() == 1
    own.close()


async def test_joining_without_a_transaction_is_an_error(client: Client[Any], world: World) -> None:
    own = world.connection()
    async with client.after_commit(own.raw) as tx:
        with pytest.raises(TransactionMisused, match=r"transaction"):
            await client.start(tx, Greet())
    own.close()
    assert (world.count(), world.heard) == (0, [])


async def test_an_error_in_the_block_is_not_masked_by_the_open_transaction(client: Client[Any], world: World) -> None:
    own = world.connection()
    with pytest.raises(ZeroDivisionError):
        async with client.after_commit(own.raw) as tx:
            own.begin()
            await client.start(tx, Greet())
            raise ZeroDivisionError
    own.roll_back()
    own.close()
    assert (world.count(), world.heard) == (0, [])


async def test_savepoints_work_in_a_joined_transaction(client: Client[Any], world: World) -> None:
    own = world.connection()
    async with client.after_commit(own.raw) as tx:
        own.begin()
        await client.start(tx, Greet())
        with pytest.raises(ZeroDivisionError):
            async with client.savepoint(tx):
                await client.start(tx, Nothing())
                raise ZeroDivisionError
        own.commit()
    own.close()
    assert world.heard == [("job_scheduled", "greet")]
    assert world.count() == 1


async def test_several_transactions_in_one_block_are_announced_at_its_end(client: Client[Any], world: World) -> None:
    own = world.connection()
    async with client.after_commit(own.raw) as tx:
        for job in (Greet(), Nothing()):
            own.begin()
            await client.start(tx, job)
            own.commit()
        assert world.heard == []
    own.close()
    assert world.heard == [("job_scheduled", "greet"), ("job_scheduled", "nothing")]


@pytest.mark.parametrize("wrong", [None, "a string", 7, object()], ids=["None", "str", "int", "object"])
async def test_something_that_is_no_connection_is_refused(client: Client[Any], world: World, wrong: Any) -> None:
    with pytest.raises(TransactionMisused):
        async with client.after_commit(wrong) as tx:
            await client.start(tx, Greet())
    with pytest.raises(TransactionMisused):
        async with client.after_commit(wrong):
            pass
    assert world.count() == 0


async def test_the_caller_may_close_his_connection_after_the_commit(client: Client[Any], world: World) -> None:
    own = world.connection()
    async with client.after_commit(own.raw) as tx:
        own.begin()
        await client.start(tx, Greet())
        own.commit()
        own.close()
    assert world.heard == [("job_scheduled", "greet")]
    assert world.count() == 1


async def test_a_joined_deferred_transaction_is_refused_before_it_deadlocks(client: Client[Any], world: World) -> None:
    if world.database == "memory":
        pytest.skip("memory knows no deferred transactions")
    own = world.connection()
    async with client.after_commit(own.raw) as tx:
        own.raw.execute("BEGIN")
        own.raw.execute("SELECT count(*) FROM orders").fetchall()
        with pytest.raises(TransactionMisused, match="BEGIN IMMEDIATE"):
            await client.start(tx, Greet())
        own.raw.execute("ROLLBACK")
    own.close()
    assert world.count() == 0


async def test_pythons_own_transaction_block_can_be_joined(client: Client[Any], world: World) -> None:
    """`with connection:` commits at its end; the transaction was begun IMMEDIATE by isolation_level."""
    if world.database == "memory":
        pytest.skip("about sqlite3")
    raw = sqlite3.connect(world.path, isolation_level="IMMEDIATE")
    raw.execute("CREATE TABLE orders (id INTEGER)")
    raw.commit()
    async with client.after_commit(raw) as tx:
        with raw:
            raw.execute("INSERT INTO orders VALUES (1)")
            await client.start(tx, Greet())
    assert raw.execute("SELECT count(*) FROM orders").fetchone() == (1,)
    raw.close()
    assert world.count() == 1
    assert world.heard == [("job_scheduled", "greet")]


async def test_a_connection_of_another_thread_is_refused(client: Client[Any], world: World) -> None:
    if world.database == "memory":
        pytest.skip("about sqlite3")
    made: list[sqlite3.Connection] = []
    done, go = threading.Event(), threading.Event()

    def elsewhere() -> None:
        connection = sqlite3.connect(world.path, isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        made.append(connection)
        done.set()
        go.wait(45)
        connection.execute("ROLLBACK")
        connection.close()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(done.wait, 10)
    try:
        with pytest.raises(TransactionMisused, match="thread"):
            async with client.after_commit(made[0]) as tx:
                await client.start(tx, Greet())
    finally:
        go.set()
        await asyncio.to_thread(thread.join)
    assert world.count() == 0


async def test_blocks_left_unused_leave_nothing_behind(client: Client[Any], world: World) -> None:
    own = world.connection()
    _ = (client.transaction(), client.after_commit(own.raw))
    del _
    gc.collect()
    own.close()
    assert (await start(client, Greet())).status == "pending"


async def test_a_transaction_says_where_it_belongs(client: Client[Any], world: World) -> None:
    own = world.connection()
    async with client.transaction() as tx:
        assert isinstance(tx, OpenTransaction)
        assert not tx.joined
    async with client.after_commit(own.raw) as tx:
        assert isinstance(tx, OpenTransaction)
        assert tx.joined
    own.close()
