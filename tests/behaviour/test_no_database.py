"""A client and a worker can be started while the database is unavailable; how often to try can be limited."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Step, eventually, patiently, start, tasks
from tests.behaviour.watching import Points, watched
from tests.support.postgres import PostgresServer

import queuert
from queuert import (
    Attempt,
    Handlers,
    InvalidArgument,
    SchemaTooNew,
    StorageError,
    StorageUnavailable,
    Worker,
)


def echoing() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    return handlers


def unavailable(times: int) -> list[Exception]:
    return [StorageUnavailable(f"no database, {number}") for number in range(times)]


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
async def test_a_server_that_comes_later(scheme: str, own_server: PostgresServer) -> None:
    url = own_server.url.replace("postgresql:", f"{scheme}:")
    await asyncio.to_thread(own_server.stop)
    async with (
        queuert.connect(url, jobs=[Step]) as client,
        Worker(client, echoing(), recovery_backoff=SOON, poll_interval=0.05),
    ):
        with pytest.raises(StorageUnavailable):
            await start(client)
        await asyncio.to_thread(own_server.start)
        (chain,) = await start(client)
        assert await client.wait(chain, timeout=PATIENCE) == 0


async def test_run_with_a_server_that_comes_later(own_server: PostgresServer) -> None:
    await asyncio.to_thread(own_server.stop)
    async with queuert.connect(own_server.url, jobs=[Step]) as client:
        worker = Worker(client, echoing(), recovery_backoff=SOON, poll_interval=0.05)
        running = asyncio.create_task(worker.run())
        await asyncio.to_thread(own_server.start)

        async def works() -> bool:
            try:
                (chain,) = await start(client)
                return await client.wait(chain, timeout=PATIENCE) == 0
            except StorageUnavailable:
                return False

        await eventually(works)
        await worker.stop()
        assert await patiently(running) == 0


async def test_run_gives_up_when_the_server_stays_away(own_server: PostgresServer) -> None:
    await asyncio.to_thread(own_server.stop)
    async with queuert.connect(own_server.url, jobs=[Step]) as client:
        worker = Worker(client, echoing(), recovery_backoff=SOON, recovery_max_attempts=3)
        assert await patiently(worker.run()) == 3
        with pytest.raises(StorageUnavailable) as caught:
            await patiently(worker.start())
        assert any("gave up after 3 failures" in note for note in caught.value.__notes__)
        with pytest.raises(StorageUnavailable):
            async with worker:
                raise AssertionError("not reached")


@pytest.mark.drivers
async def test_a_client_migrates_before_its_first_use(setting: Setting) -> None:
    points = Points()
    points.fail("migrate", *unavailable(2))
    async with watched(setting.connect([Step]), points) as client:
        assert points.counts["migrate"] == 1
        with pytest.raises(StorageUnavailable):
            await client.list_jobs()
        assert await client.list_jobs() is not None
        migrations = points.counts["migrate"]
        (chain,) = await start(client)
        assert await client.get_chain(chain) is not None
        assert points.counts["migrate"] == migrations, "once is enough"


async def test_a_sync_client_migrates_before_its_first_use(own_server: PostgresServer) -> None:
    own_server.stop()
    with queuert.connect_sync(own_server.url, jobs=[Step]) as client:
        with pytest.raises(StorageUnavailable), client.transaction():
            raise AssertionError("not reached")
        own_server.start()
        with client.transaction() as tx:
            chain = client.start(tx, Step())
        assert client.get_chain(chain) is not None


async def test_other_errors_are_raised_when_the_client_is_entered(setting: Setting) -> None:
    for error in (SchemaTooNew(9, 7, 8), StorageError("PostgreSQL rejected the connection")):
        points = Points()
        points.fail("migrate", error)
        with pytest.raises(type(error)):
            async with watched(setting.connect([Step]), points):
                raise AssertionError("not reached")


async def test_the_worker_waits_for_the_schema_and_then_works(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        (chain,) = await start(client)
        points.fail("migrate", *unavailable(3))
        async with Worker(client, echoing(), recovery_backoff=SOON, poll_interval=setting.poll_interval):
            assert await client.wait(chain, timeout=PATIENCE) == 0


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_a_limit_at_the_start(setting: Setting, limit: int) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        worker = Worker(client, echoing(), recovery_backoff=SOON, recovery_max_attempts=limit)
        tried = points.counts["migrate"]
        points.fail("migrate", *unavailable(100))
        with pytest.raises(StorageUnavailable, match=f"no database, {limit - 1}"):
            await patiently(worker.start())
        assert points.counts["migrate"] == tried + limit
        assert await patiently(worker.run()) == 3
        assert not tasks()
        points.mend("migrate")
        async with worker:  # it can be started again
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=PATIENCE) == 0


async def test_a_limit_that_is_not_reached_at_the_start(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        (chain,) = await start(client)
        points.fail("migrate", *unavailable(2))
        points.fail("next_available_in", *unavailable(1))  # it is asked for, too: the client may leave the schema alone
        async with Worker(
            client, echoing(), recovery_backoff=SOON, recovery_max_attempts=4, poll_interval=setting.poll_interval
        ):
            assert await client.wait(chain, timeout=PATIENCE) == 0


async def test_a_limit_while_it_works(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    points = Points()
    async with setting.connect([Step]) as plain, watched(setting.connect([Step]), points) as client:
        worker = Worker(
            client, echoing(), recovery_backoff=SOON, recovery_max_attempts=3, poll_interval=0.02, shutdown_timeout=0.1
        )
        running = asyncio.create_task(worker.run())
        (chain,) = await start(plain)
        assert await plain.wait(chain, timeout=PATIENCE) == 0
        with caplog.at_level(logging.CRITICAL, "queuert.worker"):
            points.fail("next_available_in", *unavailable(2))  # failures that are not in a row do not add up
            await eventually(lambda: not points._failures["next_available_in"])
            points.fail("next_available_in", *unavailable(100))
            assert await patiently(running) == 3
        assert "gives up after 3 failures in a row" in caplog.text
        assert not tasks()


async def test_the_with_block_raises_what_the_worker_gave_up_with(setting: Setting) -> None:
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        worker = Worker(
            client, echoing(), recovery_backoff=SOON, recovery_max_attempts=2, poll_interval=0.02, shutdown_timeout=0.1
        )
        with pytest.raises(StorageUnavailable):
            async with worker:
                points.fail("next_available_in", *unavailable(100))
                await eventually(lambda: worker._failure is not None)
        points.mend("next_available_in")
        with pytest.raises(ValueError, match="the block's own"):
            async with worker:
                points.fail("next_available_in", *unavailable(100))
                await eventually(lambda: worker._failure is not None)
                raise ValueError("the block's own")
        points.mend("next_available_in")
        points.fail("claim", *unavailable(100))
        with pytest.raises(StorageUnavailable):
            await patiently(worker.drain())


async def test_errors_that_stay_end_the_worker_at_once(setting: Setting) -> None:
    """Also if the database was away when it was started."""
    for limit in (0, 10):
        points = Points()
        async with watched(setting.connect([Step]), points) as client:
            points.fail("migrate", *unavailable(1), SchemaTooNew(9, 7, 8))
            worker = Worker(client, echoing(), recovery_backoff=SOON, recovery_max_attempts=limit)
            with pytest.raises(SchemaTooNew):
                await patiently(worker.run())
            assert not tasks()


@pytest.mark.parametrize("wrong", [-1, 1.5, True, None, "3"])
async def test_a_wrong_limit_is_refused(wrong: Any) -> None:
    async with queuert.connect("memory://", jobs=[Step]) as client:
        with pytest.raises(InvalidArgument, match="recovery_max_attempts must be 0"):
            Worker(client, echoing(), recovery_max_attempts=wrong)
