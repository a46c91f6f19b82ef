"""Waiting for the end of a chain: every end there is, notifications that come, get lost, or were never to be."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from tests.support.jobs import Charge, Close, Greet, Rate, Receipt, Reserve
from tests.support.naming import short
from tests.support.worlds import World, claim, complete, end, fail, start

from queuert.adapters.in_process import InProcessNotify
from queuert.client.client import Client
from queuert.errors import (
    ChainCancelled,
    ChainExpired,
    ChainFailed,
    ChainNotFound,
    ClientClosed,
    InvalidArgument,
    JobTypeMismatch,
    UnknownJobType,
    WaitTimeout,
)
from queuert.jobs import Chain, EntryJob
from queuert.ports.notify import Callback, Dispose, Topic

pytestmark = pytest.mark.drivers

NEVER = 3600.0
"""A poll interval that no test lives to see."""
SOON = 0.01


class Counted(InProcessNotify):
    """Counts its listeners, and says when somebody has begun to listen."""

    def __init__(self, hub: Any) -> None:
        super().__init__(hub)
        self.begun = 0
        self.ended = 0

    async def listen(self, topic: Topic, callback: Callback) -> Dispose:
        self.begun += 1
        dispose = await super().listen(topic, callback)

        async def counted() -> None:
            self.ended += 1
            await dispose()

        return counted


class Deaf(InProcessNotify):
    """Loses every message: it publishes nothing and hears nothing."""

    async def publish(self, topic: Topic, values: Sequence[str]) -> None:
        if topic != "chain_ended":
            await super().publish(topic, values)


class Broken(InProcessNotify):
    """Cannot be listened to."""

    async def listen(self, topic: Topic, callback: Callback) -> Dispose:
        raise ConnectionError("no channel")


def waiters(client: Client[Any]) -> list[str]:
    """The chains that somebody waits for."""
    return client._waiting._waiters.chain_ids()


async def until_waiting(client: Client[Any], *chains: Chain[Any]) -> None:
    """Let others run until these chains are waited for."""
    wanted = {chain.id for chain in chains}
    async with asyncio.timeout(60):
        while not wanted <= set(waiters(client)):
            await asyncio.sleep(0)


@pytest.fixture
def never(world: World) -> Client[Any]:
    """A client that hears of ends, and never polls."""
    return world.client(poll_interval=NEVER)


async def test_the_output_of_a_chain_that_has_ended_already(never: Client[Any]) -> None:
    async with never as client:
        chain = await start(client, Greet())
        await complete(client, chain, "hi")
        assert await client.wait(chain) == "hi"
        assert await client.wait(chain, timeout=0) == "hi"
        assert await client.wait(chain, timeout=timedelta(seconds=5)) == "hi"
        assert waiters(client) == []


async def test_a_notification_ends_the_wait(never: Client[Any]) -> None:
    async with never as client:
        chain = await start(client, Reserve(order_id=1))
        waiting = asyncio.create_task(client.wait(chain, timeout=45))
        await until_waiting(client, chain)
        await complete(client, chain, Charge(order_id=1, amount=Decimal(1)))
        await complete(client, chain, Receipt("p"))
        assert await waiting == Receipt("p")
        assert waiters(client) == []


async def test_a_null_output_is_an_end(never: Client[Any]) -> None:
    from tests.support.jobs import Nothing

    async with never as client:
        chain = await start(client, Nothing())
        await complete(client, chain, None)
        assert await client.wait(chain, timeout=45) is None


@pytest.mark.parametrize("already", [True, False], ids=["already", "later"])
@pytest.mark.parametrize("ending", ["failed", "cancelled", "expired", "deleted"])
async def test_every_other_end_is_an_error(world: World, ending: str, already: bool) -> None:
    async with world.client(poll_interval=SOON) as client:
        chain = await start(client, Greet())

        async def finish() -> None:
            if ending == "failed":
                await fail(client, chain, "no luck")
            elif ending == "expired":
                (claimed,) = await claim(client, "greet")
                await end(client, claimed.job, "expired")
            else:
                async with client.transaction() as tx:
                    await (client.cancel if ending == "cancelled" else client.delete)(tx, chain)

        expected: dict[str, type[ChainFailed | ChainCancelled | ChainExpired | ChainNotFound]] = {
            "failed": ChainFailed,
            "cancelled": ChainCancelled,
            "expired": ChainExpired,
            "deleted": ChainNotFound,
        }
        if already:
            await finish()
        waiting = asyncio.create_task(client.wait(chain, timeout=45))
        if not already:
            await until_waiting(client, chain)
            await finish()
        with pytest.raises(expected[ending]) as caught:
            await waiting
        assert caught.value.chain_id == chain.id
        if isinstance(caught.value, ChainFailed):
            assert caught.value.last_error is not None
            assert caught.value.last_error["message"] == "no luck"
            assert "UNHANDLED_ERROR: no luck" in str(caught.value)
        assert waiters(client) == []


@pytest.mark.parametrize("ending", ["cancelled", "deleted"])
async def test_these_ends_are_announced(never: Client[Any], ending: str) -> None:
    async with never as client:
        chain = await start(client, Greet())
        waiting = asyncio.create_task(client.wait(chain, timeout=45))
        await until_waiting(client, chain)
        async with client.transaction() as tx:
            await (client.cancel if ending == "cancelled" else client.delete)(tx, chain)
        with pytest.raises(ChainCancelled if ending == "cancelled" else ChainNotFound):
            await waiting


async def test_a_chain_that_is_not_there(never: Client[Any]) -> None:
    async with never as client:
        ghost: Chain[Greet] = Chain(str(uuid4()), "greet")
        with pytest.raises(ChainNotFound):
            await client.wait(ghost, timeout=45)


@pytest.mark.parametrize("timeout", [0, 0.02, timedelta(milliseconds=20)], ids=short)
async def test_time_runs_out(never: Client[Any], timeout: Any) -> None:
    async with never as client:
        chain = await start(client, Greet())
        with pytest.raises(WaitTimeout) as caught:
            await client.wait(chain, timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.chain_id == chain.id
        assert caught.value.timeout == (timeout.total_seconds() if isinstance(timeout, timedelta) else timeout)
        assert chain.id in str(caught.value)
        assert waiters(client) == []


async def test_a_timeout_says_what_is_known_of_the_chain(never: Client[Any]) -> None:
    async with never as client:
        chain = await start(client, Greet())
        (claimed,) = await claim(client, "greet")
        await end(client, claimed.job, "pending", error=b'{"code": "BAD_GREETING", "message": "no"}')
        with pytest.raises(WaitTimeout) as caught:
            await client.wait(chain, timeout=0)
    assert (caught.value.status, caught.value.failed_blockers) == ("pending", {})
    assert caught.value.last_error == {"code": "BAD_GREETING", "message": "no"}
    assert str(caught.value) == (
        f"chain {chain.id} did not end within 0 s; its status is 'pending'; its last error is BAD_GREETING: no; "
        "no worker that is alive has a handler for 'greet', and none has ever had one; no worker is alive"
    )


async def test_waiting_in_the_transaction_that_starts_the_chain_is_explained(never: Client[Any]) -> None:
    async with never as client, client.transaction() as tx:
        chain = await client.start(tx, Greet())
        with pytest.raises(ChainNotFound, match="not committed yet: call wait\\(\\) after the block"):
            await client.wait(chain, timeout=0)


async def test_a_timeout_names_the_blockers_that_ended_badly(never: Client[Any]) -> None:
    async with never as client:
        order = await start(client, Reserve(order_id=1))
        good, bad, open_one = [await start(client, Rate()) for _ in range(3)]
        waiting = await start(client, Close(day="today", order=order, rates=[good, bad, open_one]))
        async with client.transaction() as tx:
            async with client.take_over(tx, good, Rate) as current:
                await current.settle(1.0)
            await client.cancel(tx, bad)
        await fail(client, order)
        with pytest.raises(WaitTimeout) as caught:
            await client.wait(waiting, timeout=0)
        assert caught.value.status == "blocked"
        assert caught.value.failed_blockers == {order.id: "failed", bad.id: "cancelled"}
        assert f"it waits for chains that ended without an output: {order.id} (failed), {bad.id} (cancelled)" in str(
            caught.value
        )


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "5", True, timedelta(seconds=-1)], ids=short)
async def test_timeouts_are_checked(never: Client[Any], timeout: Any) -> None:
    async with never as client:
        chain = await start(client, Greet())
        with pytest.raises(InvalidArgument, match="timeout"):
            await client.wait(chain, timeout=timeout)
        assert waiters(client) == []


@pytest.mark.parametrize("wrong", [None, 7, Greet()], ids=short)
async def test_only_chains_are_waited_for(never: Client[Any], wrong: Any) -> None:
    async with never as client:
        with pytest.raises(InvalidArgument, match="expected a Chain"):
            await client.wait(wrong, timeout=45)


async def test_an_end_that_was_never_announced_is_found_when_time_runs_out(never: Client[Any]) -> None:
    """The last look comes after the clock has run out, and is worth more than the clock."""
    async with never as client:
        chain = await start(client, Greet())
        waiting = asyncio.create_task(client.wait(chain, timeout=1))
        await until_waiting(client, chain)
        (claimed,) = await claim(client, "greet")
        await end(client, claimed.job, "completed", output=b'"in silence"')
        assert await waiting == "in silence"


@pytest.mark.parametrize("channel", ["none", "deaf", "broken"])
async def test_polling_finds_what_was_not_heard(world: World, channel: str, caplog: pytest.LogCaptureFixture) -> None:
    notify: Any = None
    if channel == "deaf":
        notify = Deaf(world.hub)
    elif channel == "broken":
        notify = Broken(world.hub)
    async with world.client(poll_interval=SOON, notify=notify) as client:
        chains = [await start(client, Greet()) for _ in range(3)]
        waiting = [asyncio.create_task(client.wait(chain, timeout=45)) for chain in chains]
        await until_waiting(client, *chains)
        for chain in chains:
            await complete(client, chain, chain.id)
        assert await asyncio.gather(*waiting) == [chain.id for chain in chains]
        assert client.hook_failures == 0
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert bool(warned) == (channel == "broken")
    assert all("polling instead" in record.getMessage() for record in warned)


async def test_a_notification_for_a_chain_that_goes_on_is_no_end(never: Client[Any], world: World) -> None:
    async with never as client:
        chain = await start(client, Greet())
        waiting = asyncio.create_task(client.wait(chain, timeout=45))
        await until_waiting(client, chain)
        for _ in range(3):
            world.hub.publish("chain_ended", [chain.id, "somebody else"])
            await asyncio.sleep(0)
        assert not waiting.done()
        await complete(client, chain, "hi")
        assert await waiting == "hi"


async def test_several_wait_for_one_chain(never: Client[Any]) -> None:
    async with never as client:
        chain = await start(client, Greet())
        waiting = [asyncio.create_task(client.wait(chain, timeout=45)) for _ in range(5)]
        await until_waiting(client, chain)
        async with asyncio.timeout(60):
            while len(client._waiting._waiters._by_chain[chain.id]) < 5:
                await asyncio.sleep(0)
        await complete(client, chain, "hi")
        assert await asyncio.gather(*waiting) == ["hi"] * 5


async def test_a_wait_in_another_client_of_the_process_is_woken(world: World) -> None:
    async with world.client(poll_interval=NEVER) as one, world.client(poll_interval=NEVER) as two:
        chain = await start(one, Greet())
        waiting = asyncio.create_task(two.wait(chain, timeout=45))
        await until_waiting(two, chain)
        await complete(one, chain, "hi")
        assert await waiting == "hi"


async def test_closing_the_client_ends_every_wait(world: World) -> None:
    async with world.client(poll_interval=NEVER) as client:
        chains = [await start(client, Greet()) for _ in range(3)]
        waiting = [asyncio.create_task(client.wait(chain)) for chain in chains]
        await until_waiting(client, *chains)
        await client.close()
        for each in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(each, ClientClosed)
        assert waiters(client) == []
        with pytest.raises(ClientClosed):
            await client.wait(chains[0])


# The async client alone


@pytest.fixture
def tasks_only(world: World) -> World:
    if not world.is_async:
        pytest.skip("tasks are for the async client")
    return world


async def test_many_waiters_share_one_listener(tasks_only: World) -> None:
    notify = Counted(tasks_only.hub)
    async with tasks_only.client(poll_interval=NEVER, notify=notify) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Greet() for _ in range(300)])
        waiting = [asyncio.create_task(client.wait(chain, timeout=100)) for chain in chains]
        await until_waiting(client, *chains)
        tasks = {task.get_name() for task in asyncio.all_tasks()}
        assert len([name for name in tasks if name == "queuert-wait-poller"]) <= 1
        async with client.transaction() as tx:
            for number, chain in enumerate(chains):
                async with client.take_over(tx, chain, Greet) as current:
                    await current.settle(str(number))
        assert await asyncio.gather(*waiting) == [str(number) for number in range(300)]
        assert (notify.begun, notify.ended, waiters(client)) == (1, 0, [])
    assert (notify.begun, notify.ended) == (1, 1)


async def test_one_poll_finds_the_ends_of_more_chains_than_fit_into_one_read(tasks_only: World) -> None:
    async with tasks_only.client(poll_interval=0.05, notify=None) as client:
        async with client.transaction() as tx:
            chains = await client.start_many(tx, [Greet() for _ in range(1100)])
        waiting = [asyncio.create_task(client.wait(chain, timeout=60)) for chain in chains]
        await until_waiting(client, *chains)
        async with client.transaction() as tx:
            await client.cancel(tx, chains)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(result) for result in results} == {ChainCancelled}


async def test_a_cancelled_waiter_leaves_nothing_behind(tasks_only: World) -> None:
    async with tasks_only.client(poll_interval=SOON) as client:
        chain, other = await start(client, Greet()), await start(client, Greet())
        cancelled = asyncio.create_task(client.wait(chain))
        kept = asyncio.create_task(client.wait(other, timeout=45))
        await until_waiting(client, chain, other)
        async with asyncio.timeout(45):
            while client._waiting._poller is None:
                await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert waiters(client) == [other.id]
        await complete(client, other, "hi")
        assert await kept == "hi"
        poller = client._waiting._poller
        # Nobody waits any more: the poller goes home by itself, and the next waiter gets a new one.
        async with asyncio.timeout(45):
            await poller
        again = asyncio.create_task(client.wait(chain, timeout=45))
        await until_waiting(client, chain)
        (claimed,) = await claim(client, "greet")
        await end(client, claimed.job, "completed", output=b'"again"')
        assert await again == "again"


async def test_a_timeout_around_the_wait_is_not_mistaken_for_ours(tasks_only: World) -> None:
    async with tasks_only.client(poll_interval=NEVER) as client:
        chain = await start(client, Greet())
        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.02):
                await client.wait(chain, timeout=45)
        assert not isinstance(caught.value, WaitTimeout)
        assert waiters(client) == []


async def test_waiters_see_the_error_when_polling_fails(tasks_only: World) -> None:
    async with tasks_only.client(poll_interval=SOON, notify=None) as client:
        chain = await start(client, Greet())
        waiting = asyncio.create_task(client.wait(chain, timeout=45))
        await until_waiting(client, chain)
        while client._waiting._poller is None:
            await asyncio.sleep(0)
        await client.sessions.storage.close()  # the database goes away under the client
        with pytest.raises(ClientClosed):
            await waiting


async def test_an_end_told_from_another_thread(tasks_only: World) -> None:
    async with tasks_only.client(poll_interval=NEVER) as client:
        chain = await start(client, Greet())
        waiting = asyncio.create_task(client.wait(chain, timeout=45))
        await until_waiting(client, chain)
        (claimed,) = await claim(client, "greet")
        await end(client, claimed.job, "completed", output=b'"hi"')
        await asyncio.to_thread(tasks_only.hub.publish, "chain_ended", [chain.id])
        assert await waiting == "hi"


# The sync client alone


async def test_threads_wait_side_by_side(world: World) -> None:
    if world.is_async:
        pytest.skip("threads are for the sync client")
    async with world.client(poll_interval=NEVER) as client:
        sync: Any = client.sync  # type: ignore[attr-defined]
        chains = [await start(client, Greet()) for _ in range(8)]
        outputs: dict[str, str] = {}

        def wait(chain: Chain[Greet]) -> None:
            outputs[chain.id] = sync.wait(chain, timeout=45)

        threads = [threading.Thread(target=wait, args=(chain,)) for chain in chains]
        for thread in threads:
            thread.start()
        await until_waiting(client, *chains)
        for chain in chains:
            await complete(client, chain, f"for {chain.id}")
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert outputs == {chain.id: f"for {chain.id}" for chain in chains}
        assert waiters(client) == []


# By id


async def test_waiting_by_id(never: Client[Any]) -> None:
    async with never as client:
        chain = await start(client, Reserve(order_id=1))
        by_id = asyncio.create_task(client.wait(chain.id, timeout=45))
        by_class = asyncio.create_task(client.wait(chain.id, Reserve, timeout=45))
        by_name = asyncio.create_task(client.wait(chain, "reserve", timeout=45))
        await until_waiting(client, chain)
        await complete(client, chain, Receipt("p"))
        assert [await by_id, await by_class, await by_name] == [Receipt("p")] * 3
        assert waiters(client) == []


async def test_waiting_for_another_type_ends_at_once(never: Client[Any]) -> None:
    async with never as client:
        chain = await start(client, Greet())
        with pytest.raises(JobTypeMismatch) as caught:
            await client.wait(chain.id, Reserve)
        assert (caught.value.job_id, caught.value.expected, caught.value.actual) == (chain.id, "reserve", "greet")
        with pytest.raises(ChainNotFound):
            await client.wait(str(uuid4()), Greet)
        with pytest.raises(InvalidArgument, match="expected a Chain or a chain id"):
            await client.wait(7)  # type: ignore[call-overload]
        with pytest.raises(UnknownJobType):
            await client.wait(chain.id, Unregistered)
        assert waiters(client) == []


class Unregistered(EntryJob[None], name="unregistered"):
    pass
