"""The user's isolation level is his own: conflicts in his transaction are his to see, ours are dealt with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from tests.adapters.postgres.drivers import ASYNC_DRIVERS, DRIVERS, Driver
from tests.adapters.postgres.scenes import Isolation, Scene, is_conflict, open_scene
from tests.support.postgres import Databases

from queuert.adapters.postgres.drivers.errors import sqlstate
from queuert.errors import BlockerNotFound, JobIdExists
from queuert.ports.provider import run_async
from queuert.records.model import NOW
from queuert_conformance.state.build import (
    cancelled,
    completed,
    continued,
    later,
    new_job,
    next_job,
    queue,
    request,
    waiting_for,
)

SNAPSHOTS: tuple[Isolation, ...] = ("repeatable_read", "serializable")


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


@pytest.fixture(params=DRIVERS, ids=str)
def each_driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.mark.parametrize("isolation", SNAPSHOTS)
async def test_everything_works_under_a_snapshot_where_nobody_interferes(scene: Scene, isolation: Isolation) -> None:
    user = await (await scene.session()).begin(isolation)
    first = new_job("a")
    second = new_job("a", blockers=waiting_for(first.id, chain_type="a"))
    await user.start(first, second)
    job = await user.take_over(first.id)
    following = next_job(job)
    await user.settle(continued(first.id, following))
    assert (await user.take_over(first.id)).id == following.id
    settled = await user.settle(completed(following.id))
    assert [each.job_id for each in settled.unblocked] == [second.id]
    await user.commit()
    await user.begin(isolation)
    await user.settle(cancelled(second.id))
    assert len((await user.delete(second.id, cascade=True)).chains) == 2
    await user.commit()
    assert scene.watch("SELECT count(*) FROM queuert_job") == [0]


@pytest.mark.parametrize("isolation", SNAPSHOTS)
@pytest.mark.parametrize("meanwhile", ["claimed", "settled", "promoted", "deleted", "went on"])
async def test_a_job_that_changed_since_the_snapshot(scene: Scene, isolation: Isolation, meanwhile: str) -> None:
    (chain,) = await scene.new("a", schedule=later(0.001) if meanwhile == "promoted" else NOW)
    user = await (await scene.session()).begin(isolation)
    if meanwhile in ("claimed", "promoted"):
        await asyncio.to_thread(scene.watch, "SELECT pg_sleep(0.002)")
        assert await scene.claim(request(queue("a")))
    elif meanwhile == "settled":
        await scene.settle(completed(chain))
    elif meanwhile == "deleted":
        await scene.delete(chain)
    else:
        await scene.settle(continued(chain, next_job(await scene.job(chain))))
    with pytest.raises(asyncpg.SerializationError) as caught:
        await user.take_over(chain)
    assert is_conflict(caught.value)
    await user.rollback()


@pytest.mark.parametrize("isolation", SNAPSHOTS)
async def test_a_conflict_in_the_users_transaction_is_the_drivers_error(
    scene: Scene, each_driver: Driver, isolation: Isolation
) -> None:
    (chain,) = await scene.new("a")
    provider = each_driver.provider(scene.url)
    connection = await each_driver.connect(scene.url)
    await each_driver.sql(connection, "SELECT 1")
    with pytest.raises(each_driver.error) as caught:
        async with each_driver.block(connection):
            await each_driver.sql(connection, f"SET TRANSACTION ISOLATION LEVEL {isolation.replace('_', ' ')}")
            await each_driver.sql(connection, "SELECT count(*) FROM queuert_job")
            await scene.settle(completed(chain))
            await run_async(provider, connection, scene.operations.get_chains([chain], lock=True))
    assert sqlstate(caught.value) == "40001"
    await each_driver.close(connection)
    await provider.close()


@pytest.mark.parametrize("each_driver", ASYNC_DRIVERS, ids=str)  # a sync one would wait in our own thread
async def test_a_deadlock_in_the_users_transaction_is_the_drivers_error(scene: Scene, each_driver: Driver) -> None:
    """Two users who lock two chains in opposite order, each in two steps: nobody but they can avoid that."""
    one, two = await scene.new("a", "a")
    provider = each_driver.provider(scene.url)
    connection = await each_driver.connect(scene.url)
    await each_driver.sql(connection, "SET deadlock_timeout = '10ms'")
    other = await scene.session()
    await other.connection.execute("SET deadlock_timeout = '60s'")
    await other.begin()
    await other.take_over(two)
    locking: list[Any] = []
    with pytest.raises(each_driver.error) as caught:
        async with each_driver.block(connection):
            await run_async(provider, connection, scene.operations.get_chains([one], lock=True))
            locking.append(scene.go(other.take_over(one)))
            await scene.blocked(other)
            await run_async(provider, connection, scene.operations.get_chains([two], lock=True))
    assert sqlstate(caught.value) == "40P01"
    await locking[0]
    await other.commit()
    await each_driver.close(connection)
    await provider.close()


@pytest.mark.parametrize("each_driver", ASYNC_DRIVERS, ids=str)  # a sync one would wait in our own thread
async def test_a_deadlock_of_our_own_statement_is_tried_again(scene: Scene, each_driver: Driver) -> None:
    """The server looks for a deadlock once, a while after a wait began: it must be ours that begins last."""
    one, two, three = sorted(await scene.new("a", "a", "a"))
    name = scene.watch("SELECT current_database()")[0]
    scene.watch(f"ALTER DATABASE {name} SET deadlock_timeout = '10ms'")
    provider = each_driver.provider(scene.url, max_size=1)
    other, gate = await scene.sessions(2)
    for session, chain in ((other, three), (gate, two)):
        await session.connection.execute("SET deadlock_timeout = '60s'")
        await session.begin()
        await session.take_over(chain)
    ours = scene.go(
        run_async(provider, None, scene.operations.settle([completed(one), completed(three), completed(two)]))
    )
    await scene.waits_for(gate)  # with the first in its hands
    wanted = scene.go(other.take_over(one))
    await scene.blocked(other)
    await gate.rollback()  # now it comes to the third
    await wanted
    await other.settle(completed(three))
    await other.commit()
    assert (await ours).applied == [True, False, True]
    await provider.close()
    assert await scene.deadlocks() == 1


async def test_our_own_statements_are_read_committed_whatever_the_database_says(
    scene: Scene, each_driver: Driver
) -> None:
    name = scene.watch("SELECT current_database()")[0]
    scene.watch(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    provider = each_driver.provider(scene.url)
    await run_async(provider, None, scene.operations.create_jobs([new_job("a") for _ in range(20)]))
    for _ in range(20):
        result = await run_async(
            provider, None, scene.operations.claim(request(queue("a", max_concurrency=5), limit=1))
        )
        settled = await run_async(provider, None, scene.operations.settle([completed(each) for each in result.jobs]))
        assert settled.applied == [True]
    await provider.close()


async def test_a_problem_leaves_the_users_transaction_usable(scene: Scene) -> None:
    user = await (await scene.session()).begin()
    job = new_job("a")
    await user.start(job)
    with pytest.raises(JobIdExists):
        await user.start(new_job("b"), job)
    with pytest.raises(BlockerNotFound):
        await user.start(new_job("b"), new_job("b", blockers=waiting_for(new_job().id)))
    await user.commit()
    assert scene.watch("SELECT id::text FROM queuert_job") == [job.id]


async def test_two_starts_with_one_id_at_once(scene: Scene) -> None:
    job = new_job("a")
    first, second = await scene.sessions(2)
    await first.begin()
    await second.begin()
    await first.start(job)
    waiting = scene.go(second.start(new_job("b"), job))
    await scene.blocked(second, by=first)
    await first.commit()
    with pytest.raises(JobIdExists):
        await waiting
    other = new_job("c")
    await second.start(other)
    await second.commit()
    assert set(scene.watch("SELECT id::text FROM queuert_job")) == {job.id, other.id}
