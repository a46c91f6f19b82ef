"""`worker.health()`: ready when the main loop turns and the database answers."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, eventually, patiently, start
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Handlers, Worker


async def test_from_start_to_stop(setting: Setting) -> None:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return 1

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, shutdown_timeout=3)
        assert worker.client is client
        before = worker.health()
        assert (before.state, before.ready, before.worker_id) == ("stopped", False, worker.id)
        assert before.stops_within == 3 + 3 + 3 + 10
        await worker.start()
        assert worker.health().state in ("starting", "running")
        await eventually(lambda: worker.health().ready)
        (chain,) = await start(client)
        await gate.arrival()
        during = worker.health()
        assert (during.state, during.running, during.ended, during.error) == ("running", 1, 0, None)
        assert during.turn_age is not None
        stopping = asyncio.create_task(worker.stop())
        await eventually(lambda: worker.health().state == "stopping")
        assert not worker.health().ready
        gate.open()
        await patiently(stopping)
        assert worker.health() == before
        assert await client.wait(chain, timeout=PATIENCE) == 1


async def test_not_ready_while_the_database_fails(setting: Setting) -> None:
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return 1

    async with setting.connect([Step]) as plain:
        client = watched(plain, points)
        async with Worker(client, handlers, poll_interval=0.02, recovery_backoff=SOON) as worker:
            await eventually(lambda: worker.health().ready)
            points.fail_times("next_available_in", 10_000)
            await eventually(lambda: worker.health().error)
            assert not worker.health().ready
            assert (worker.health().error or "").startswith("StorageError: no database at next_available_in")
            points.mend("next_available_in")
            await eventually(lambda: worker.health().ready)
            assert worker.health().error is None
