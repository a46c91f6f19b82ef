"""A queue's cap counts the queue: whoever has claimed the jobs, and whatever types he knows."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import Child, child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.capped_worker import CAP, KNOWN, First, Second
from tests.behaviour.steps import Gate, eventually, patiently, running
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Client, EntryJob, Handlers, Queue, Worker

NUMBER = 12


def waiting_at(gate: Gate, job_class: Any) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(job_class, queue="shared")
    async def work(attempt: Attempt[Any]) -> None:
        await gate()

    return handlers


async def start(client: Client[Any], job_class: type[EntryJob[None]], number: int) -> None:
    async with client.transaction() as tx:
        await client.start_many(tx, [job_class(number=each) for each in range(number)])  # type: ignore[call-arg]


async def ended(client: Client[Any], number: int) -> bool:
    return len((await client.list_jobs(status="completed", limit=1000)).items) == number


@pytest.mark.drivers
async def test_two_services_without_a_common_type_share_a_cap(setting: Setting) -> None:
    """One type belongs to the queue by its class, the other one only by its handler."""
    gate, points = Gate(), Points()
    async with AsyncExitStack() as stack:
        watcher = await stack.enter_async_context(setting.connect([First, Second]))
        for job_class in (First, Second):
            await start(watcher, job_class, 5)
            own = await stack.enter_async_context(watched(setting.connect([job_class]), points))
            queues = [Queue("shared", max_concurrency=CAP)]
            worker = Worker(own, waiting_at(gate, job_class), queues=queues, concurrency=10, poll_interval=0.02)
            await stack.enter_async_context(worker)
        await eventually(lambda: _are_running(watcher, CAP))
        claims = points.counts["claim.done"]
        await eventually(lambda: points.counts["claim.done"] >= claims + 6)
        assert len(await running(watcher)) == CAP
        gate.open()
        await eventually(lambda: ended(watcher, 10))


async def test_a_worker_without_a_cap_counts_too(setting: Setting) -> None:
    """It may exceed the cap of others, but what it runs takes their room."""
    gate, points = Gate(), Points()
    async with setting.connect([First, Second]) as watcher, setting.connect([First]) as free:
        await start(watcher, First, 2)
        async with Worker(free, waiting_at(gate, First), concurrency=2, poll_interval=0.02):
            await eventually(lambda: _are_running(watcher, 2))
            await start(watcher, Second, 5)
            queues = [Queue("shared", max_concurrency=CAP)]
            async with (
                watched(setting.connect([Second]), points) as capped,
                Worker(capped, waiting_at(gate, Second), queues=queues, concurrency=10, poll_interval=0.02),
            ):
                await eventually(lambda: _are_running(watcher, CAP))
                claims = points.counts["claim.done"]
                await eventually(lambda: points.counts["claim.done"] >= claims + 3)
                assert len(await running(watcher)) == CAP
                gate.open()
                await eventually(lambda: ended(watcher, 7))


@pytest.mark.parametrize("state", ["sqlite", "postgres"])
async def test_three_processes_and_one_is_killed(state: str, tmp_path: Path) -> None:
    """Each knows one type. What the killed one held counts until it is taken back, by a process that knows it."""
    setting = Setting(state, None, tmp_path)
    async with setting.connect(KNOWN.values()) as watcher, AsyncExitStack() as stack:
        for job_class in KNOWN.values():
            await start(watcher, job_class, NUMBER)
        workers = {name: await stack.enter_async_context(child("capped_worker", setting.url, name)) for name in KNOWN}
        heard: list[str] = []
        ears = [asyncio.create_task(listen(worker, heard)) for worker in workers.values()]
        # The first jobs stay where they are: one place for each process.
        await eventually(lambda: sum(line.endswith("stays") for line in heard) == 3)
        assert await _are_running(watcher, CAP)
        workers["first"].send(signal.SIGKILL)
        assert await workers["first"].exit_code() == -signal.SIGKILL
        assert await _are_running(watcher, CAP)
        again = await stack.enter_async_context(child("capped_worker", setting.url, "first"))
        ears.append(asyncio.create_task(listen(again, heard)))
        # Two places are still taken by those that stay; everything else goes through the third.
        await eventually(lambda: ended(watcher, 3 * NUMBER - 2))
        for worker in (workers["second"], workers["third"], again):
            worker.send(signal.SIGKILL)
        await patiently(asyncio.gather(*ears))
    counted = [int(line.split()[1]) for line in heard if not line.endswith("stays")]
    assert len(counted) >= 3 * NUMBER
    assert max(counted) == CAP


async def listen(worker: Child, heard: list[str]) -> None:
    while line := await worker.says():
        heard.append(line)


async def _are_running(client: Client[Any], number: int) -> bool:
    return len(await running(client)) == number
