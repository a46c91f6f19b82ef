"""The abort signal: what a handler sees of it, in a task and in a thread."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import SOON, Gate, Step, failures, job, patiently, start

from queuert import Attempt, Handlers, SyncAttempt, Worker


async def test_nothing_is_signalled_in_the_ordinary_course(setting: Setting) -> None:
    handlers, seen = Handlers[Any](), list[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        seen.append((attempt.signal.aborted, attempt.signal.reason))
        return 1

    async with setting.connect([Step]) as client:
        await start(client)
        await Worker(client, handlers, poll_interval=setting.poll_interval).drain()
        assert seen == [(False, None)]


async def test_timeout_cancels_and_says_so(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    handlers, seen = Handlers[Any](), list[Any]()

    @handlers.handles(Step, timeout=0.05, backoff=SOON)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.number == 1:
            try:
                await asyncio.Event().wait()
            finally:
                seen.append((attempt.signal.aborted, attempt.signal.reason))
        return attempt.number

    async with (
        setting.connect([Step]) as client,
        Worker(client, handlers, poll_interval=setting.poll_interval),
    ):
        (chain,) = await start(client)
        assert await client.wait(chain, timeout=45) == 2
        assert seen == [(True, "timeout")]
        ((code, _),) = failures(caplog, chain.id)
        assert code == "TIMEOUT"


@pytest.mark.parametrize("waiters", [1, 3])
async def test_the_signal_can_be_awaited_by_several(setting: Setting, waiters: int) -> None:
    """With cancel_on_abort=False the handler is only told, and may end as it likes."""
    handlers, ready = Handlers[Any](), Gate()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ready.reached.set()
        reasons = await asyncio.gather(*(attempt.signal.wait() for _ in range(waiters)))
        assert reasons == ["shutdown"] * waiters
        assert await attempt.signal.wait() == "shutdown", "who asks later is told at once"
        return len(reasons)

    async with setting.connect([Step]) as client:
        worker = Worker(
            client, handlers, shutdown_timeout=0, cancel_on_abort=False, poll_interval=setting.poll_interval
        )
        await worker.start()
        (chain,) = await start(client)
        await ready.arrival()
        await patiently(worker.stop())
        assert (await job(client, chain)).output == waiters


async def test_waiting_for_the_signal_can_be_given_up(setting: Setting) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        for _ in range(3):
            try:
                async with asyncio.timeout(0.01):
                    await attempt.signal.wait()
            except TimeoutError:
                continue
        return 4

    async with setting.connect([Step]) as client:
        (chain,) = await start(client)
        await Worker(client, handlers, poll_interval=setting.poll_interval).drain()
        assert (await job(client, chain)).output == 4


async def test_threads_wait_for_the_signal(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    handlers, seen = Handlers[Any](), list[Any]()

    @handlers.handles(Step, timeout=0.5, backoff=SOON)
    def step(attempt: SyncAttempt[Step]) -> int:
        if attempt.number == 1:
            seen.append(attempt.signal.wait_in_thread(0.0001))
            seen.append(attempt.signal.wait_in_thread())
            seen.append(attempt.signal.wait_in_thread(0))
            raise RuntimeError("stopped as told")
        return attempt.number

    async with (
        setting.connect([Step]) as client,
        Worker(client, handlers, poll_interval=setting.poll_interval),
    ):
        (chain,) = await start(client)
        assert await client.wait(chain, timeout=45) == 2
        assert seen[1:] == ["timeout", "timeout"]
        ((code, error),) = failures(caplog, chain.id)
        assert (code, str(error)) == ("TIMEOUT", "stopped as told")


async def test_a_timeout_in_a_thread_keeps_the_slot_until_the_thread_ends(setting: Setting) -> None:
    handlers, at_work, most = Handlers[Any](), list[int](), list[int]()

    @handlers.handles(Step, timeout=0.02)
    def step(attempt: SyncAttempt[Step]) -> int:
        at_work.append(attempt.job.number)
        most.append(len(at_work))
        attempt.signal.wait_in_thread()
        at_work.remove(attempt.job.number)
        return attempt.job.number

    async with setting.connect([Step]) as client:
        await start(client, 3)
        await patiently(Worker(client, handlers, poll_interval=setting.poll_interval).drain())
        assert most == [1, 1, 1]


async def test_the_first_reason_stays(setting: Setting) -> None:
    handlers, gate, seen = Handlers[Any](), Gate(), list[Any]()

    @handlers.handles(Step, timeout=0.02)
    async def step(attempt: Attempt[Step]) -> int:
        seen.append(await attempt.signal.wait())
        await gate()
        return 1

    async with setting.connect([Step]) as client:
        worker = Worker(
            client, handlers, shutdown_timeout=0, cancel_on_abort=False, poll_interval=setting.poll_interval
        )
        await worker.start()
        (chain,) = await start(client)
        await gate.arrival()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0.01)
        gate.open()
        await patiently(stopping)
        assert seen == ["timeout"]
        assert (await job(client, chain)).status == "completed"
