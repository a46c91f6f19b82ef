"""A client that is closed, or was never opened."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.support.jobs import Greet
from tests.support.worlds import START, World, start

from queuert import Every, Handlers, SyncAttempt, Worker, connect, connect_sync, testing
from queuert.adapters.in_process import InProcessNotify
from queuert.client.client import Client
from queuert.errors import ClientClosed, ClientMisused, QueuertError

pytestmark = pytest.mark.drivers


async def _enter(block: Any) -> None:
    async with block:
        raise AssertionError("the block was entered")


CALLS: dict[str, Callable[[Client[Any], Any, Any], Any]] = {
    "migrate": lambda client, tx, chain: client.migrate(),
    "vacuum": lambda client, tx, chain: client.vacuum(),
    "attempts": lambda client, tx, chain: client.attempts(chain.id),
    "retention": lambda client, tx, chain: client.retention(),
    "prune": lambda client, tx, chain: client.prune(),
    "transaction": lambda client, tx, chain: _enter(client.transaction()),
    "after_commit": lambda client, tx, chain: _enter(client.after_commit(object())),
    "savepoint": lambda client, tx, chain: _enter(client.savepoint(tx)),
    "start": lambda client, tx, chain: client.start(tx, Greet()),
    "start_many": lambda client, tx, chain: client.start_many(tx, [Greet()]),
    "submit": lambda client, tx, chain: client.submit(Greet()),
    "submit_many": lambda client, tx, chain: client.submit_many([Greet()]),
    "get_chain": lambda client, tx, chain: client.get_chain(chain),
    "get_chain of a type": lambda client, tx, chain: client.get_chain(chain.id, Greet),
    "get_archived": lambda client, tx, chain: client.get_archived(chain),
    "get_job": lambda client, tx, chain: client.get_job(chain.id),
    "list_chains": lambda client, tx, chain: client.list_chains(),
    "list_jobs": lambda client, tx, chain: client.list_jobs(Greet),
    "iter_chains": lambda client, tx, chain: anext(client.iter_chains()),
    "iter_jobs": lambda client, tx, chain: anext(client.iter_jobs(Greet)),
    "list_chain_jobs": lambda client, tx, chain: client.list_chain_jobs(chain),
    "list_blocked_jobs": lambda client, tx, chain: client.list_blocked_jobs(chain),
    "get_blockers": lambda client, tx, chain: client.get_blockers(chain.id),
    "stats": lambda client, tx, chain: client.stats(),
    "history": lambda client, tx, chain: client.history(),
    "set_limit": lambda client, tx, chain: client.set_limit(tx, "partner", concurrency=1),
    "clear_limit": lambda client, tx, chain: client.clear_limit(tx, "partner"),
    "list_limits": lambda client, tx, chain: client.list_limits(),
    "why": lambda client, tx, chain: client.why(chain),
    "doctor": lambda client, tx, chain: client.doctor(),
    "list_workers": lambda client, tx, chain: client.list_workers(),
    "list_pauses": lambda client, tx, chain: client.list_pauses(),
    "pause": lambda client, tx, chain: client.pause(tx, Greet),
    "resume": lambda client, tx, chain: client.resume(tx, Greet),
    "put_schedule": lambda client, tx, chain: client.put_schedule(tx, "s", Every(timedelta(hours=1)), Greet()),
    "get_schedule": lambda client, tx, chain: client.get_schedule("s"),
    "schedule_of": lambda client, tx, chain: client.schedule_of(chain),
    "list_schedules": lambda client, tx, chain: client.list_schedules(),
    "pause_schedule": lambda client, tx, chain: client.pause_schedule(tx, "s"),
    "resume_schedule": lambda client, tx, chain: client.resume_schedule(tx, "s"),
    "trigger_schedule": lambda client, tx, chain: client.trigger_schedule(tx, "s"),
    "backfill": lambda client, tx, chain: client.backfill(tx, "s", START, START),
    "delete_schedule": lambda client, tx, chain: client.delete_schedule(tx, "s"),
    "preview": lambda client, tx, chain: client.preview("s"),
    "trigger": lambda client, tx, chain: client.trigger(tx, chain),
    "retry": lambda client, tx, chain: client.retry(tx, chain),
    "cancel": lambda client, tx, chain: client.cancel(tx, chain),
    "delete": lambda client, tx, chain: client.delete(tx, chain),
    "bulk_retry": lambda client, tx, chain: client.bulk_retry(tx, "type:greet"),
    "bulk_cancel": lambda client, tx, chain: client.bulk_cancel(tx, "type:greet"),
    "bulk_delete": lambda client, tx, chain: client.bulk_delete(tx, "type:greet"),
    "bulk_trigger": lambda client, tx, chain: client.bulk_trigger(tx, "type:greet"),
    "bulk_set_priority": lambda client, tx, chain: client.bulk_set_priority(tx, "type:greet", 1),
    "plan": lambda client, tx, chain: client.plan("retry", "type:greet"),
    "list_audit": lambda client, tx, chain: client.list_audit(),
    "take_over": lambda client, tx, chain: _enter(client.take_over(tx, chain)),
    "wait": lambda client, tx, chain: client.wait(chain, timeout=45),
    "entering again": lambda client, tx, chain: _enter(client),
}


def test_every_public_method_is_in_the_list() -> None:
    public = {name for name in vars(Client) if not name.startswith("_")}
    assert public - {"close", "flush"} == {name.split(" ")[0] for name in CALLS} - {"entering"}


async def test_a_closed_client_refuses_every_call(world: World) -> None:
    async with world.client() as client, client.transaction() as tx:
        chain = await client.start(tx, Greet())
    before = world.snapshot()
    for call in CALLS.values():
        with pytest.raises(ClientClosed, match="closed"):
            await call(client, tx, chain)
    assert world.snapshot() == before


async def test_closing_twice_does_nothing(world: World) -> None:
    client = world.client()
    async with client:
        await start(client, Greet())
        await client.close()
        await client.close()
    await client.close()
    assert world.count() == 1


async def test_a_client_that_was_never_used_can_be_closed(world: World) -> None:
    client = world.client()
    await client.close()
    with pytest.raises(ClientClosed):
        await client.stats()


async def test_a_client_closed_inside_its_own_transaction_rolls_back_or_commits_but_does_not_hang(world: World) -> None:
    client = world.client()
    async with asyncio.timeout(60):
        async with client:
            try:
                async with client.transaction() as tx:
                    await client.start(tx, Greet())
                    await client.close()
                    with pytest.raises(ClientClosed):
                        await client.start(tx, Greet())
            except QueuertError:
                assert world.count() == 0
            else:
                assert world.count() == 1
    async with world.client() as other:
        await start(other, Greet())


async def test_a_client_that_was_not_entered_refuses_every_call(world: World) -> None:
    async with world.client() as owner, owner.transaction() as tx:
        chain = await owner.start(tx, Greet())
    before, threads = world.snapshot(), {*threading.enumerate()}
    client = world.client()
    block = "async with client:" if world.is_async else "with client:"
    calls = {name: call for name, call in CALLS.items() if name not in ("transaction_of", "entering again")}
    for name, call in calls.items():
        with pytest.raises(ClientMisused, match=f"`{block}`"):
            await call(client, tx, chain)
            raise AssertionError(f"{name} worked")
    begun = [each for each in threading.enumerate() if each not in threads and not each.name.startswith("asyncio")]
    assert (world.snapshot(), begun) == (before, [])
    async with client:
        await client.stats()


def test_a_client_that_was_entered_and_never_closed_warns() -> None:
    def enter_and_forget() -> None:
        connect_sync("memory://", jobs=[Greet])
        connect_sync("memory://", jobs=[Greet]).__enter__()

    enter_and_forget()
    with pytest.warns(ResourceWarning, match="never closed") as warned:
        gc.collect()
    assert len(warned) == 1


async def test_the_wrong_kind_of_with_is_explained() -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Greet)
    def greet(attempt: SyncAttempt[Greet]) -> str:
        return attempt.job.who

    async with connect("memory://", jobs=[Greet]) as client:
        chain = await start(client, Greet())
        async with client.transaction() as tx:
            blocks: list[Any] = [
                connect("memory://", jobs=[Greet]),
                client.transaction(),
                client.savepoint(tx),
                client.after_commit(tx.connection),
                client.take_over(tx, chain),
                Worker(client, handlers),
                testing.running(client, handlers),
            ]
            for block in blocks:
                with pytest.raises(ClientMisused, match="use `async with` here, not `with`"), block:
                    raise AssertionError("the block was entered")
    with connect_sync("memory://", jobs=[Greet]) as sync:
        waiting = sync.submit(Greet())
        with sync.transaction() as sync_tx:
            sync_blocks: list[Any] = [
                connect_sync("memory://", jobs=[Greet]),
                sync.transaction(),
                sync.savepoint(sync_tx),
                sync.after_commit(sync_tx.connection),
                sync.take_over(sync_tx, waiting),
                testing.running(sync, handlers),
                testing.started(sync),
            ]
            for block in sync_blocks:
                with pytest.raises(ClientMisused, match="use `with` here, not `async with`"):
                    await _enter(block)


async def test_an_error_in_the_block_closes_the_client(world: World) -> None:
    client = world.client()
    with pytest.raises(ZeroDivisionError):
        async with client:
            raise ZeroDivisionError
    with pytest.raises(ClientClosed):
        await client.stats()


async def test_closing_one_client_leaves_the_others_alone(world: World) -> None:
    async with world.client() as one:
        async with world.client() as two:
            chain = await start(two, Greet())
        assert await one.get_chain(chain) is not None
        await start(one, Greet())
    assert world.count() == 2


class Stuck(InProcessNotify):
    async def close(self) -> None:
        raise ConnectionError("the channel does not answer")


async def test_a_channel_that_cannot_be_closed_does_not_keep_the_database_open(world: World) -> None:
    client = world.client(notify=Stuck(world.hub))
    with pytest.raises(ConnectionError):
        async with client:
            await start(client, Greet())
    assert client.sessions.storage.provider._closed
    await client.close()
    with pytest.raises(ClientClosed):
        await client.stats()
