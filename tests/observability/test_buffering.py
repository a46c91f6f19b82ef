"""What claims a write is told after its commit: rolled back, at whatever stage, it is never heard of."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, patiently
from tests.behaviour.working import begin
from tests.observability.recorder import Recorder
from tests.support.jobs import JOBS, After, Greet, Reserve

import queuert
from queuert import Attempt, Chain, Client, Handlers, Transaction, Worker

Operation = Callable[[Client[Any], Transaction[Any], Chain[Any]], Awaitable[Any]]


class Stop(Exception):
    """Ends a transaction without a commit."""


async def start(client: Client[Any], tx: Transaction[Any], chain: Chain[Any]) -> None:
    await client.start(tx, After(greeting=chain))


async def start_many(client: Client[Any], tx: Transaction[Any], chain: Chain[Any]) -> None:
    await client.start_many(tx, [Greet(), Greet()])


async def trigger(client: Client[Any], tx: Transaction[Any], chain: Chain[Any]) -> None:
    await client.trigger(tx, chain)


async def cancel(client: Client[Any], tx: Transaction[Any], chain: Chain[Any]) -> None:
    await client.cancel(tx, chain, cascade=True)


async def delete(client: Client[Any], tx: Transaction[Any], chain: Chain[Any]) -> None:
    await client.delete(tx, chain)


async def complete(client: Client[Any], tx: Transaction[Any], chain: Chain[Any]) -> None:
    async with client.take_over(tx, chain, Greet) as current:
        await current.settle("Hello")


OPERATIONS: list[Operation] = [start, start_many, trigger, cancel, delete, complete]
EVENTS = {
    "start": ["chain_created", "job_created", "job_blocked"],
    "start_many": ["chain_created", "job_created"] * 2,
    "trigger": ["job_triggered"],
    "cancel": ["job_cancelled", "chain_cancelled"],
    "delete": ["chain_deleted"],
    "complete": ["job_completed", "chain_completed"],
}

operation_cases = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.__name__)


@operation_cases
async def test_told_after_the_commit_and_never_after_a_rollback(
    setting: Setting, recorder: Recorder, operation: Operation
) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet(), after=3600)
        recorder.clear()
        with pytest.raises(Stop):
            async with client.transaction() as tx:
                await operation(client, tx, chain)
                raise Stop
        assert recorder.told == []
        async with client.transaction() as tx:
            await operation(client, tx, chain)
            assert recorder.told == [], "before the commit"
        assert recorder.names() == EVENTS[operation.__name__]


@operation_cases
async def test_a_savepoint_takes_back_only_its_own(setting: Setting, recorder: Recorder, operation: Operation) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet(), after=3600)
        recorder.clear()
        async with client.transaction() as tx:
            first = await client.start(tx, Greet())
            with pytest.raises(Stop):
                async with client.savepoint(tx):
                    await operation(client, tx, chain)
                    async with client.savepoint(tx):
                        await client.start(tx, Greet())
                    raise Stop
            async with client.savepoint(tx):
                second = await client.start(tx, Greet())
        assert recorder.names() == ["chain_created", "job_created"] * 2
        assert [facts["chain_id"] for facts in recorder.of("chain_created")] == [first.id, second.id]


async def test_an_operation_that_fails_leaves_nothing_to_tell(setting: Setting, recorder: Recorder) -> None:
    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet())
        recorder.clear()
        async with client.transaction() as tx:
            with pytest.raises(queuert.JobIdExists):
                await client.start_many(tx, [Greet(), Greet().set(id=chain.id)])
            with pytest.raises(queuert.ChainNotRetryable):
                await client.retry(tx, chain)
        assert recorder.told == []


async def test_a_commit_that_fails_tells_nothing(recorder: Recorder, tmp_path: Any) -> None:
    async with Setting("postgres", None, tmp_path).connect(JOBS, observers=[recorder]) as client:
        with pytest.raises(Exception, match="duplicate key"):
            async with client.transaction() as tx:
                await tx.connection.execute(
                    "CREATE TEMPORARY TABLE once (id int UNIQUE DEFERRABLE INITIALLY DEFERRED) ON COMMIT DROP"
                )
                await tx.connection.execute("INSERT INTO once VALUES (1), (1)")
                await client.start(tx, Greet())
        assert recorder.names() == ["state_error"]
        assert recorder.one("state_error")["operation"] == "transaction"


# In handlers

WHERE = ["in prepare", "between", "in complete", "after complete"]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("mode", ["atomic", "staged"])
async def test_a_handler_that_fails_at_any_stage(setting: Setting, recorder: Recorder, where: str, mode: Any) -> None:
    """What it started is told of only where it was committed: in a staged `prepare` that had ended well."""
    registry: Handlers[Any] = Handlers()

    @registry.handles(Reserve, max_attempts=1)
    async def fails(attempt: Attempt[Reserve, Any]) -> Any:
        async with attempt.prepare(mode) as tx:
            await attempt.client.start(tx, Greet(who="prepared"))
            stop(where == "in prepare")
        stop(where == "between")
        async with attempt.complete() as tx:
            await attempt.client.start(tx, Greet(who="completed"))
            stop(where == "in complete")
        stop(where == "after complete")

    async with setting.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Reserve(order_id=1))
        recorder.clear()
        await patiently(Worker(client, registry, backoff=SOON, poll_interval=0.02).drain())
        found = await client.list_chains(Greet)

    assert recorder.names("chain", "job", "attempt") == [
        "attempt_started",
        *(["chain_created", "job_created"] if found.items else []),
        "attempt_ended",
        "job_failed",
        "chain_failed",
        "attempt_failed",
    ]
    assert len(found.items) == (mode == "staged" and where != "in prepare")
    assert recorder.one("chain_failed")["chain_id"] == chain.id


def stop(here: bool) -> None:
    if here:
        raise Stop


def stop_psycopg(block: psycopg.AsyncTransaction) -> None:
    raise psycopg.Rollback(block)


# Transactions of the caller's own


def own_sqlite(setting: Setting) -> sqlite3.Connection:
    return sqlite3.connect(setting.url.removeprefix("sqlite:///"), isolation_level=None)


@operation_cases
@pytest.mark.parametrize("commits", [True, False], ids=["commit", "rollback"])
async def test_a_joined_sqlite_transaction_that_ends_by_hand(
    sqlite: Setting, recorder: Recorder, operation: Operation, commits: bool
) -> None:
    async with sqlite.connect(JOBS, observers=[recorder]) as client:
        chain = await begin(client, Greet(), after=3600)
        recorder.clear()
        connection = own_sqlite(sqlite)
        async with client.after_commit(connection) as tx:
            connection.execute("BEGIN IMMEDIATE")
            await operation(client, tx, chain)
            connection.execute("COMMIT" if commits else "ROLLBACK")
        connection.close()
        assert recorder.names() == (EVENTS[operation.__name__] if commits else [])


@operation_cases
@pytest.mark.parametrize("ending", ["commit", "error", "Rollback"])
async def test_a_joined_psycopg_transaction(
    recorder: Recorder, operation: Operation, ending: str, tmp_path: Any
) -> None:
    """`psycopg.Rollback` leaves the block of a transaction without an error."""
    setting = Setting("postgres", None, tmp_path)
    async with (
        setting.connect(JOBS, observers=[recorder]) as client,
        await psycopg.AsyncConnection.connect(setting.url, autocommit=True) as connection,
    ):
        chain = await begin(client, Greet(), after=3600)
        recorder.clear()
        try:
            async with client.after_commit(connection) as tx, connection.transaction():
                await operation(client, tx, chain)
                if ending == "Rollback":
                    raise psycopg.Rollback
                stop(ending == "error")
        except Stop:
            pass
        assert recorder.names() == (EVENTS[operation.__name__] if ending == "commit" else [])


async def test_a_block_of_psycopg_that_is_rolled_back_within_the_transaction(recorder: Recorder, tmp_path: Any) -> None:
    setting = Setting("postgres", None, tmp_path)
    async with (
        setting.connect(JOBS, observers=[recorder]) as client,
        await psycopg.AsyncConnection.connect(setting.url, autocommit=True) as connection,
    ):
        async with client.after_commit(connection) as tx, connection.transaction():
            kept = await client.start(tx, Greet())
            async with connection.transaction() as inner:
                await client.start(tx, Greet())
                stop_psycopg(inner)
        assert [facts["chain_id"] for facts in recorder.of("job_created")] == [kept.id]


async def test_observers_are_told_before_workers_are_woken(sqlite: Setting, recorder: Recorder) -> None:
    told_when_woken: list[list[str]] = []
    async with sqlite.connect(JOBS, observers=[recorder]) as client:
        dispose = await client.sessions.channel.listen(
            "job_scheduled", lambda _: told_when_woken.append(recorder.names())
        )
        await begin(client, Greet())
        await dispose()
    assert told_when_woken == [["chain_created", "job_created"]]
