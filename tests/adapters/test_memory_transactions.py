"""Transactions of the memory store: what is undone, what others see meanwhile, and who has to wait."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest
from tests.adapters.memory_support import START, Memory, new_job, next_job, queue

from queuert.adapters.memory import (
    AsyncMemoryProvider,
    MemoryConnection,
    MemoryProvider,
    MemoryStore,
    memory_state,
    sync_memory_state,
)
from queuert.adapters.memory.tables import Tables
from queuert.errors import (
    BlockerNotFound,
    ClientClosed,
    InvalidArgument,
    StorageBusy,
    TransactionClosed,
    TransactionMisused,
    TransactionNested,
)
from queuert.ports.program import Program, atomically
from queuert.ports.provider import run_async
from queuert.records.dedup import Dedup
from queuert.records.model import ClaimRequest, Lease, Settlement, When


def test_a_version_has_all_tables_of_the_one_before() -> None:
    """Each field by its name, so that a new one cannot be forgotten. A copy shares nothing that can be changed."""
    names = {each.name for each in fields(Tables)} - {"now", "counting"}  # these are of the command
    tables = Tables(START)
    for name in names:
        kind = type(getattr(tables, name))
        setattr(tables, name, {name: name} if kind is dict else [name] if kind is list else name)
    later = START + timedelta(seconds=1)
    for version in (tables.at(later), tables.copy(later)):
        assert version.now == later
        assert {name: getattr(version, name) for name in names} == {name: getattr(tables, name) for name in names}
    copy = tables.copy(later)
    shared = {name for name in names if getattr(copy, name) is getattr(tables, name)}
    assert {name for name in shared if isinstance(getattr(tables, name), dict | list)} == {"horizons"}


def busy_store() -> Memory:
    """Jobs in every status, chains of several jobs, edges, keys."""
    memory = Memory(busy_timeout=1)
    memory.create(new_job("a1"), new_job("a2", dedup=Dedup("k")), new_job("a3", priority=5))
    memory.create(new_job("b1", waits_for=["a1"]), new_job("b2", waits_for=["a1", "a2"]))
    memory.create(new_job("c1", schedule=When(after=50)), new_job("u1", "u"), new_job("u2", "u"))
    first, second = memory.claim(queue("u")).jobs
    memory.complete(first, continuation=next_job(first.job, "u3"))
    memory.complete(second, output=b"2")
    memory.end("a3", "failed")
    memory.claim(limit=1)
    return memory


def random_change(memory: Memory, chance: random.Random, number: int, tx: MemoryConnection) -> Program[Any]:
    """Any one mutation, likely to hit something."""
    ops, ids = memory.ops, [row.id for row in memory.everything(tx)[0]]
    row = memory.job(chance.choice(ids or ["none"]), tx)
    job_id = "none" if row is None else row.id
    token = None if row is None else row.token
    what = chance.randrange(9)
    if what == 0:
        waits_for = [each for each in chance.sample(ids, min(2, len(ids))) if each[0] in "abc"]
        dedup = chance.choice([None, Dedup("k"), Dedup("l", scope="any")])
        schedule = When(after=chance.choice([0, 30]))
        return ops.create_jobs([new_job(f"c{number:04}", waits_for=waits_for, dedup=dedup, schedule=schedule)])
    if what == 1:
        return ops.settle([Settlement(job_id=job_id, token=token, status="completed", output=b"1")])
    if what == 2 and row is not None:
        following = next_job(row, f"d{number:04}", row.type_name)
        return ops.settle([Settlement(job_id=job_id, token=token, status="completed", continuation=following)])
    if what == 3:
        return ops.settle([Settlement(job_id=job_id, token=None, status=chance.choice(["failed", "cancelled"]))])
    if what == 4 and token is not None:
        later = When(after=chance.choice([0, 20]))
        return ops.settle([Settlement(job_id=job_id, token=token, status="pending", schedule=later)])
    if what == 5:
        return ops.delete_chains([job_id], cascade=chance.random() < 0.5)
    if what == 6:
        return ops.retry([job_id]) if chance.random() < 0.5 else ops.trigger([job_id])
    if what == 7:
        return ops.reap(["t", "u"], [], 2, b"{}")
    return ops.claim(ClaimRequest("w", chance.randrange(1, 4), (queue("t", "u"),)))


def claim_order(memory: Memory) -> list[str]:
    """What would be claimed from now on, in order; nothing is kept."""
    with memory.rolled_back() as tx:
        return memory.claimed_ids(queue("t", "u"), tx=tx)


@pytest.mark.parametrize("seed", range(60))
def test_rollback_restores_everything_and_outsiders_never_see_a_thing(seed: int) -> None:
    chance = random.Random(seed)
    memory = busy_store()
    number = 0
    for _ in range(4):
        before, order, keys = memory.everything(), claim_order(memory), dict(memory.store.committed.keys)
        commit = chance.random() < 0.3
        try:
            with memory.provider.transaction() as tx:
                for _ in range(chance.randrange(8)):
                    number += 1
                    inside = memory.everything(tx)
                    try:
                        with memory.provider.savepoint(tx):
                            for _ in range(chance.randrange(1, 4)):
                                number += 1
                                with suppress(BlockerNotFound):
                                    memory.do(random_change(memory, chance, number, tx), tx)
                                assert memory.everything() == before
                            if chance.random() < 0.4:
                                raise ZeroDivisionError
                    except ZeroDivisionError:
                        assert memory.everything(tx) == inside
                after = memory.everything(tx)
                if not commit:
                    raise ZeroDivisionError
        except ZeroDivisionError:
            assert memory.everything() == before
            assert claim_order(memory) == order
            assert memory.store.committed.keys == keys
        else:
            assert memory.everything() == after
        assert_indexes_match_rows(memory)
        memory.pass_time(chance.choice([0, 15, 70]))


def assert_indexes_match_rows(memory: Memory) -> None:
    tables = memory.store.committed
    pending = [row for row in tables.jobs.values() if row.status == "pending"]
    assert tables.pending == sorted((row.priority, row.scheduled_at, row.id) for row in pending)
    assert tables.blockers.keys() <= tables.jobs.keys()
    assert all(tables.blockers.values())


def test_an_operation_that_fails_half_way_leaves_nothing_in_a_transaction_that_goes_on() -> None:
    memory = Memory()
    memory.create(new_job("a"))
    (claimed,) = memory.claim().jobs
    with memory.provider.transaction() as tx:
        memory.create(new_job("b"), tx=tx)
        before = memory.everything(tx)
        with pytest.raises(BlockerNotFound):
            memory.create(new_job("c", dedup=Dedup("k")), new_job("d", waits_for=["nowhere"]), tx=tx)
        with pytest.raises(BlockerNotFound):
            memory.complete(
                claimed,
                tx,
                continuation=next_job(claimed.job, "e", blockers=new_job("x", waits_for=["nowhere"]).blockers),
            )
        assert memory.everything(tx) == before
        memory.create(new_job("c", dedup=Dedup("k")), tx=tx)
    assert memory.status("a") == "running"
    assert memory.status("c") == "pending"


def test_a_mutation_outside_a_transaction_is_all_or_nothing() -> None:
    memory = Memory()
    with pytest.raises(BlockerNotFound):
        memory.create(new_job("a"), new_job("b", waits_for=["nowhere"]))
    assert memory.status("a") is None
    memory.create(new_job("a"))
    assert memory.status("a") == "pending"


def test_outsiders_see_the_chain_that_the_open_transaction_has_replaced() -> None:
    memory = Memory()
    memory.create(new_job("a"))
    (claimed,) = memory.claim().jobs
    memory.complete(claimed, continuation=next_job(claimed.job, "b"))
    before = memory.everything()
    with memory.provider.transaction() as tx:
        memory.do(memory.ops.delete_chains(["a"], cascade=False), tx)
        assert memory.everything() == before
        memory.create(new_job("a", "u"), tx=tx)
        assert memory.everything() == before
    assert [row.type_name for row in memory.everything()[0]] == ["u"]


def test_tokens_are_not_rolled_back() -> None:
    memory = Memory()
    memory.create(new_job("a"))
    with memory.rolled_back() as tx:
        (lost,) = memory.claim(tx=tx).jobs
    (claimed,) = memory.claim().jobs
    assert claimed.job.token != lost.job.token
    assert lost.job.token is not None
    assert memory.do(memory.ops.renew([Lease("a", lost.job.token, 60)])) == ["a"]


def test_atomic_programs_undo_their_earlier_commands() -> None:
    memory = Memory()

    def two_commands() -> Program[None]:
        yield from memory.ops.create_jobs([new_job("b")])
        yield from memory.ops.create_jobs([new_job("a")])

    memory.create(new_job("a"))
    with pytest.raises(Exception, match="exists"):
        memory.do(atomically(two_commands()))
    assert memory.status("b") is None
    with memory.provider.transaction() as tx:
        with pytest.raises(Exception, match="exists"):
            memory.do(atomically(two_commands()), tx)
        memory.create(new_job("c"), tx=tx)
    assert [memory.status(job_id) for job_id in "bc"] == [None, "pending"]


def test_connections_know_their_state() -> None:
    memory = Memory()
    with memory.provider.transaction() as tx:
        assert memory.provider.in_transaction(tx)
        memory.provider.check(tx)
        with pytest.raises(TransactionMisused, match="another memory store"):
            MemoryProvider(MemoryStore()).check(tx)
        with pytest.raises(TransactionMisused, match="another memory store"):
            Memory().create(new_job("a"), tx=tx)
    assert not memory.provider.in_transaction(tx)
    with pytest.raises(TransactionMisused, match="no transaction"):
        memory.provider.check(tx)
    with pytest.raises(TransactionMisused, match="got object"):
        memory.provider.check(object())  # type: ignore[arg-type]
    with pytest.raises(TransactionClosed):
        memory.create(new_job("a"), tx=tx)
    with pytest.raises(TransactionClosed), memory.provider.savepoint(tx):
        pass
    assert memory.status("a") is None


def test_a_connection_of_the_users_own_can_be_joined_again_and_again() -> None:
    memory = Memory()
    connection = MemoryConnection(memory.store)
    for job_id in "ab":
        with connection.transaction():
            memory.create(new_job(job_id), tx=connection)
            with pytest.raises(TransactionNested), connection.transaction():
                pass
    assert [memory.status(job_id) for job_id in "ab"] == ["pending", "pending"]


def test_a_savepoint_whose_transaction_is_over_undoes_nothing() -> None:
    memory = Memory()
    transaction = memory.provider.transaction()
    tx = transaction.__enter__()
    memory.create(new_job("a"), tx=tx)
    with suppress(ZeroDivisionError), memory.provider.savepoint(tx):
        transaction.__exit__(None, None, None)
        raise ZeroDivisionError
    assert memory.status("a") == "pending"


def test_a_transaction_inside_another_of_the_same_thread_is_refused() -> None:
    memory = Memory()
    with memory.provider.transaction() as tx:
        with pytest.raises(TransactionNested), memory.provider.transaction():
            pass
        with pytest.raises(TransactionNested):
            memory.create(new_job("a"))
        memory.create(new_job("a"), tx=tx)
    assert memory.status("a") == "pending"


def test_another_thread_waits_for_the_writer_and_reads_without_waiting() -> None:
    memory = Memory()
    with ThreadPoolExecutor(2) as pool:
        with memory.provider.transaction() as tx:
            memory.create(new_job("a"), tx=tx)
            assert pool.submit(memory.status, "a").result(45) is None
            writing = pool.submit(memory.create, new_job("b"))
            assert pool.submit(memory.status, "b").result(45) is None
            assert not writing.done()
        writing.result(45)
    assert [memory.status(job_id) for job_id in "ab"] == ["pending", "pending"]


def test_waiting_too_long_for_the_writer_is_busy() -> None:
    memory = Memory(busy_timeout=0.01)
    with ThreadPoolExecutor(1) as pool, memory.provider.transaction():
        writing = pool.submit(memory.create, new_job("a"))
        assert isinstance(writing.exception(5), StorageBusy)


async def test_tasks_and_threads_share_one_store() -> None:
    store = MemoryStore(lambda: START)
    adapter, blocking = memory_state(store), sync_memory_state(store)
    memory = Memory()
    memory.store, memory.provider = store, MemoryProvider(store)
    ops = adapter.operations
    async with adapter.provider.transaction() as tx:
        adapter.provider.check(tx)
        assert adapter.provider.in_transaction(tx)
        await run_async(adapter.provider, tx, ops.create_jobs([new_job("a")]))
        with suppress(ZeroDivisionError):
            async with adapter.provider.savepoint(tx):
                await run_async(adapter.provider, tx, ops.create_jobs([new_job("b")]))
                raise ZeroDivisionError
        assert await run_async(adapter.provider, None, ops.get_jobs(["a"])) == [None]
        with pytest.raises(TransactionNested):
            async with adapter.provider.transaction():
                pass
        with pytest.raises(TransactionNested):
            await run_async(adapter.provider, None, ops.create_jobs([new_job("c")]))
        elsewhere = asyncio.create_task(asyncio.to_thread(memory.create, new_job("d")))
        other_task = asyncio.create_task(run_async(adapter.provider, None, ops.create_jobs([new_job("e")])))
        await asyncio.sleep(0.01)
        assert not elsewhere.done()
        assert not other_task.done()
    await asyncio.gather(elsewhere, other_task)
    assert [memory.status(job_id) for job_id in "abcde"] == ["pending", None, None, "pending", "pending"]
    await adapter.close()
    blocking.close()


async def test_a_cancelled_transaction_rolls_back_and_lets_others_in() -> None:
    adapter = memory_state()
    inside = asyncio.Event()

    async def hold() -> None:
        async with adapter.provider.transaction() as tx:
            await run_async(adapter.provider, tx, adapter.operations.create_jobs([new_job("a")]))
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with adapter.provider.transaction() as tx:
        assert await run_async(adapter.provider, tx, adapter.operations.get_jobs(["a"])) == [None]


async def test_closing_one_provider_leaves_the_store_to_the_others() -> None:
    store = MemoryStore()
    closed, blocking, other = AsyncMemoryProvider(store), MemoryProvider(store), MemoryProvider(store)
    for _ in "ab":
        await closed.close()
        blocking.close()
    ops = sync_memory_state(store).operations
    with pytest.raises(ClientClosed):
        await run_async(closed, None, ops.migrate())
    with pytest.raises(ClientClosed):
        closed.transaction()
    memory = Memory()
    memory.store, memory.provider = store, blocking
    with pytest.raises(ClientClosed):
        memory.create(new_job("a"))
    memory.provider = other
    memory.create(new_job("a"))
    assert memory.do(ops.migrate()) == []
    memory.do(ops.vacuum())


def test_a_store_brings_its_own_clock() -> None:
    with pytest.raises(InvalidArgument, match="either"):
        memory_state(MemoryStore(), clock=lambda: START)
