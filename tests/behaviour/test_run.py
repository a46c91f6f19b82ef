"""`run()`: it ends by a signal or by `stop()`, with or without signals, and with an exit code."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, Gate, Step, job, patiently, start, tasks
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Handlers, Worker

pytestmark = pytest.mark.in_turn


def waiting() -> tuple[Handlers[Any], Gate]:
    handlers, gate = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.job.number

    return handlers, gate


async def test_stop_ends_run(setting: Setting) -> None:
    handlers, gate = waiting()
    gate.open()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        for _ in range(3):  # again and again
            running = asyncio.create_task(worker.run())
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=PATIENCE) == 0
            assert await patiently(worker.stop())
            assert await patiently(running) == 0
            assert not tasks()


async def test_stop_ends_run_that_has_just_begun(setting: Setting) -> None:
    handlers, _ = waiting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        for turns in range(1, 6):
            running = asyncio.create_task(worker.run())
            for _ in range(turns):
                await asyncio.sleep(0)
            assert await patiently(worker.stop())
            assert await patiently(running) == 0
            assert not tasks()


async def test_stop_ends_run_while_it_waits_for_the_database(setting: Setting) -> None:
    handlers, _ = waiting()
    points = Points()
    migrating = points.hold("migrate")
    async with setting.connect([Step]) as plain:
        client = watched(plain, points)
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        running = asyncio.create_task(worker.run())
        await migrating.arrival()
        assert await patiently(worker.stop())
        assert await patiently(running) == 0


async def test_a_run_that_begins_while_the_worker_stops(setting: Setting) -> None:
    handlers, gate = waiting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await worker.start()
        (first,) = await start(client)
        await gate.arrival()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        running = asyncio.create_task(worker.run())
        await asyncio.sleep(0)
        gate.open()
        assert await patiently(stopping)
        assert await client.wait(first, timeout=PATIENCE) == 0
        (second,) = await start(client)
        assert await client.wait(second, timeout=PATIENCE) == 0
        assert not running.done()
        await worker.stop()
        assert await patiently(running) == 0


async def test_a_worker_that_is_started_again_at_once_goes_on(setting: Setting) -> None:
    handlers, gate = waiting()
    gate.open()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        running = asyncio.create_task(worker.run())
        (chain,) = await start(client)
        assert await client.wait(chain, timeout=PATIENCE) == 0
        await worker.stop()
        async with worker:
            assert await patiently(running) == 0
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=PATIENCE) == 0


async def test_the_exit_code_tells_of_aborted_jobs_whoever_stops_it(setting: Setting) -> None:
    handlers, gate = waiting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, shutdown_timeout=0.01)
        running = asyncio.create_task(worker.run())
        (chain,) = await start(client)
        await gate.arrival()
        assert await patiently(worker.stop()) is False
        assert await patiently(running) == 1
        assert (await job(client, chain)).status == "pending"


async def test_a_run_that_is_cancelled_stops_the_worker(setting: Setting) -> None:
    """This is what Ctrl-C does where signals cannot be handled: `asyncio.run` cancels its task."""
    handlers, gate = waiting()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, shutdown_timeout=0.01)
        running = asyncio.create_task(worker.run())
        (chain,) = await start(client)
        await gate.arrival()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await patiently(running)
        assert (await job(client, chain)).status == "pending"
        assert not tasks()


@pytest.mark.parametrize("platform", ["another thread", "no add_signal_handler"])
def test_it_works_where_there_are_no_signals(setting: Setting, platform: str, caplog: pytest.LogCaptureFixture) -> None:
    outcome: list[Any] = []

    async def main() -> int:
        loop = asyncio.get_running_loop()
        if platform == "no add_signal_handler":
            loop.add_signal_handler = _not_implemented  # type: ignore[assignment,method-assign]
        handlers, gate = waiting()
        gate.open()
        async with setting.connect([Step]) as client:
            worker = Worker(client, handlers, poll_interval=setting.poll_interval)
            running = asyncio.create_task(worker.run())
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=PATIENCE) == 0
            await worker.stop()
            return await running

    def work() -> None:
        outcome.append(asyncio.run(main()))

    with caplog.at_level(logging.WARNING, "queuert.worker"):
        if platform == "another thread":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join(PATIENCE)
        else:
            work()
    assert outcome == [0]
    assert "runs without signals" in caplog.text
    assert "worker.stop()" in caplog.text


def _not_implemented(*_: Any) -> None:
    raise NotImplementedError
