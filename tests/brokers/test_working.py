"""Clients and workers through bad times, with each broker: commits stand, jobs run, and wake-ups come back.

Workers and waiters poll once in an hour: what wakes them is the broker, or the word that something was missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from tests.behaviour.steps import SOON, Step, done, eventually, patiently, start
from tests.support.brokers import PREFIX, Broker
from tests.support.channels import adapter_of
from tests.support.proxy import Proxy

import queuert
from queuert import Attempt, Client, Handlers, SyncClient, WaitTimeout, Worker
from queuert.engine import publishing

HOUR = 3600.0


class Scene:
    """A database, and ways to the broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._url = f"memory://{uuid4()}"
        self.ran: list[int] = []

    def connect(self, port: int | None = None) -> Client[Any]:
        return queuert.connect(self._url, **self._options(port))

    def connect_sync(self, port: int | None = None) -> SyncClient[Any]:
        return queuert.connect_sync(self._url, **self._options(port))

    def _options(self, port: int | None) -> Any:
        url = self._broker.url_of(port or self._broker.port)
        return {"jobs": [Step], "notify": url, "notify_prefix": PREFIX, "poll_interval": HOUR, **self._broker.options}

    @asynccontextmanager
    async def worker(self, port: int | None = None, **options: Any) -> AsyncGenerator[Client[Any]]:
        handlers = Handlers[Any]()

        @handlers.handles(Step)
        async def step(attempt: Attempt[Step]) -> int:
            self.ran.append(attempt.job.number)
            return attempt.job.number

        settings: dict[str, Any] = {"poll_interval": HOUR, "recovery_backoff": SOON, "concurrency": 5, **options}
        async with self.connect(port) as client, Worker(client, handlers, **settings):
            yield client


@pytest.fixture
def scene(broker: Broker) -> Scene:
    return Scene(broker)


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """`undo` ends it: a busy machine may need longer for any message."""
    monkeypatch.setattr(publishing, "PUBLISH_SECONDS", 0.1)
    monkeypatch.setattr(publishing, "GIVEN_UP_AFTER", 0.1)
    return monkeypatch


async def wakes(scene: Scene, client: Client[Any], waiter: Client[Any]) -> None:
    """A job that is started now runs now, and who waits for it is told."""
    (chain,) = await start(client)
    assert await waiter.wait(chain, timeout=45) == 0


async def test_a_broker_that_is_killed_and_restarted_under_load(broker: Broker, scene: Scene) -> None:
    number = 0
    async with scene.worker() as waiter, scene.connect() as client:
        await wakes(scene, client, waiter)
        for _ in range(2):
            for moment in ("up", "down", "up again"):
                if moment == "down":
                    broker.stop()
                elif moment == "up again":
                    broker.start()
                for _ in range(20):
                    await start(client, 2)
                    number += 2
            await eventually(partial(done, client, number + 1))
        # Nothing was restarted but the broker.
        failures = client.hook_failures
        await wakes(scene, client, waiter)
        assert client.hook_failures == failures
    assert len(scene.ran) == number + 2


async def test_a_connection_that_is_cut_in_the_middle_of_publishing(
    broker: Broker, scene: Scene, network: Proxy
) -> None:
    async with scene.worker() as waiter, scene.connect(network.port) as client:
        await wakes(scene, client, waiter)
        for number in range(1, 40, 7):
            network.cut_after = number
            (chain,) = await start(client)  # the commit stands, whatever becomes of its message
            network.cut_after = None
            assert await client.get_chain(chain) is not None
        await wakes(scene, client, waiter)
        await eventually(lambda: done(client, 8))
    assert len(scene.ran) == 8


async def test_a_network_that_hangs_holds_up_nobody(
    scene: Scene, network: Proxy, short_patience: pytest.MonkeyPatch
) -> None:
    async with scene.worker() as waiter, scene.connect(network.port) as client:
        await wakes(scene, client, waiter)
        network.freeze()
        for _ in range(5):
            await patiently(start(client))
        await eventually(lambda: client.hook_failures >= 5)
        network.thaw()

        ran = len(scene.ran)

        async def again() -> bool:
            await start(client)
            return len(scene.ran) > ran

        await eventually(again)
        short_patience.undo()

        async def wakes_again() -> bool:
            """Not yet, while a call that was late with the short patience is being repeated."""
            (chain,) = await start(client)
            try:
                return await waiter.wait(chain, timeout=2) == 0
            except WaitTimeout:
                return False

        await eventually(wakes_again)
        # Those that nobody heard of were found with the others.
        await eventually(lambda: len(scene.ran) >= 8)


@pytest.mark.usefixtures("short_patience")
async def test_a_worker_whose_network_hangs_goes_on(scene: Scene, network: Proxy) -> None:
    """It cannot tell anybody, nor hear of anything: it polls, and its jobs are settled."""
    async with scene.connect() as client, scene.worker(network.port, poll_interval=0.05):
        network.freeze()
        await start(client, 10)
        await eventually(lambda: done(client, 10))
        network.thaw()


async def test_a_worker_that_begins_without_its_broker(broker: Broker, scene: Scene) -> None:
    broker.stop()
    async with scene.worker(poll_interval=0.05) as client:
        await start(client, 3)
        await eventually(lambda: done(client, 3))
    async with scene.worker(poll_interval=0.5) as client:
        broker.start()
        await start(client, 3)
        await eventually(lambda: done(client, 6))
        # It listens now: the three pairs are there without a restart.
        assert adapter_of(client)._current.listener._task is not None


async def test_sync_clients_and_async_workers(broker: Broker, scene: Scene) -> None:
    """A thread starts jobs and waits for them; both ways are the broker's."""

    def use(number: int) -> list[int]:
        with scene.connect_sync() as client:
            outputs = list[int]()
            for each in range(number):
                with client.transaction() as tx:
                    chain = client.start(tx, Step(number=each))
                outputs.append(client.wait(chain, timeout=45))
            assert client.hook_failures == 0
            return outputs

    async with scene.worker():
        assert await patiently(asyncio.to_thread(use, 5)) == [0, 1, 2, 3, 4]
        broker.stop()
        broker.start()
        assert await patiently(asyncio.to_thread(use, 3)) == [0, 1, 2]


async def test_two_thousand_waiters_on_one_listener(broker: Broker, scene: Scene) -> None:
    number = 2_000
    async with scene.connect() as client, scene.connect() as other:
        chains = await start(other, number)
        waiting = [asyncio.create_task(client.wait(chain)) for chain in chains]
        await eventually(lambda: len(client._waiting._waiters.chain_ids()) == number)
        await eventually(lambda: client._waiting._dispose is not None)
        await broker.until_listeners(1)
        async with scene.worker(concurrency=500), asyncio.timeout(60):
            assert await asyncio.gather(*waiting) == list(range(number))
        await broker.until_listeners(1)
