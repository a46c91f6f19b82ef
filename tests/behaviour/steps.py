"""What the suites of the worker share: a plain job, gates to force an order, and bounded waits."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import queuert
from queuert import Backoff, Chain, Client, EntryJob, JobRecord
from queuert.model import ClaimRequest, QueueLimit, TypeLimit

PATIENCE = 30.0
"""Seconds before a test gives up. The expected path takes milliseconds; a busy machine may take long."""

SOON = Backoff(initial=0.02, maximum=0.05)
"""For retries and recoveries that a test waits for."""


class Step(EntryJob[int], name="step"):
    number: int = 0


class Gate:
    """Somebody comes to a point and waits there until the test lets him go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._open = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self._open.wait()

    def open(self) -> None:
        self._open.set()

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    async def arrival(self) -> None:
        await patiently(self.reached.wait())


async def patiently(what: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(what, PATIENCE)


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait until the condition holds; it may be a coroutine function."""
    deadline = time.monotonic() + PATIENCE
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        assert time.monotonic() < deadline, f"still not so after {PATIENCE:g} s: {_source(condition)}"
        await asyncio.sleep(0.005)


def _source(condition: Callable[[], Any]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except TypeError:
        return repr(condition)


async def start(client: Client[Any], number: int = 1, **options: Any) -> list[Chain[Step]]:
    """Start so many steps, in one transaction."""
    async with client.transaction() as tx:
        return await client.start_many(tx, [Step(number=each).set(**options) for each in range(number)])


async def job(client: Client[Any], chain: Chain[Any]) -> JobRecord[Any]:
    """The first job of a chain, which must be there."""
    found = await client.get_job(chain.id)
    assert found is not None
    return found


async def running(client: Client[Any]) -> list[str]:
    """The ids of the jobs that somebody has leased."""
    return [record.id for record in (await client.list_jobs(status="running", limit=1000)).items]


async def done(client: Client[Any], number: int) -> bool:
    """Whether so many steps are completed."""
    return len((await client.list_jobs(Step, status="completed", limit=1000)).items) == number


def tasks() -> set[asyncio.Task[Any]]:
    """What runs of ours besides the waiting of the clients. Drivers and adapters have tasks of their own."""
    return {task for task in asyncio.all_tasks() if _is_ours(task) and "queuert-wait" not in task.get_name()}


def _is_ours(task: asyncio.Task[Any]) -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    if code is None:
        return False
    path, package = Path(code.co_filename), Path(queuert.__file__).parent
    return path.is_relative_to(package) and not path.is_relative_to(package / "adapters")


async def die_holding(client: Client[Any], number: int = 1, *, lease: float = 0.001) -> list[str]:
    """Claim steps as a worker would that dies right after; returns their ids. A short lease is over at once."""
    types = (TypeLimit("step", number, lease),)
    request = ClaimRequest("dead-worker", number, (QueueLimit("default", 100, types, ("step",)),))
    result = await client._run((client._engine.state.claim(request), None))
    return [claimed.job.id for claimed in result.jobs]
