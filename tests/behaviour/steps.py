"""What the suites of the worker share: a plain job, gates to force an order, and bounded waits."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import queuert
from queuert import Backoff, Chain, Client, EntryJob, JobRecord
from queuert.records.model import ClaimRequest, Lease, QueueLimit, TypeLimit

PATIENCE = 45.0
"""Seconds before a test gives up. The expected path takes milliseconds; a busy machine may take long."""

SOON = Backoff(initial=0.02, maximum=0.05)
"""For retries and recoveries that a test waits for."""


OF_CLIENTS = ("queuert-wait", "queuert-announcer")
"""Names of tasks that are not a worker's."""


class Step(EntryJob[int], name="step"):
    number: int = 0


def failures(caplog: pytest.LogCaptureFixture, job_id: str) -> list[tuple[str, BaseException]]:
    """The failed attempts of a job, as the worker has logged them: code and error. Success clears the stored error."""
    return [
        (getattr(record, "error_code", ""), record.exc_info[1])
        for record in caplog.records
        if getattr(record, "job_id", None) == job_id and record.exc_info and record.exc_info[1] is not None
    ]


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


class Looks:
    """When a test looked at the database. A machine that stands still for longer than a lease loses it, rightly."""

    def __init__(self) -> None:
        self._moments = [time.monotonic()]

    def note(self) -> None:
        self._moments.append(time.monotonic())

    def were_within(self, seconds: float) -> bool:
        """Whether no two were further apart, until now."""
        self.note()
        return all(after - before < seconds for before, after in pairwise(self._moments))


async def patiently(what: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(what, PATIENCE)


async def eventually(condition: Callable[[], Any]) -> None:
    """Wait until the condition holds; it may be a coroutine function."""
    began = time.monotonic()
    while True:
        holds = condition()
        if inspect.isawaitable(holds):
            holds = await holds
        if holds:
            return
        waited = time.monotonic() - began
        assert waited < PATIENCE, f"still not so after {PATIENCE:g} s: {_source(condition)}"
        # Seldom enough that the question, often one to the database, does not take the time of the answer.
        await asyncio.sleep(min(max(0.005, waited / 5), 0.1))


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
    """What runs of ours but for the clients' waiting and announcing. Drivers and adapters have tasks of their own."""
    return {task for task in asyncio.all_tasks() if _is_ours(task) and not task.get_name().startswith(OF_CLIENTS)}


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


async def end_lease(client: Client[Any], chain: Chain[Any]) -> None:
    """From now on, the lease of the chain's first job has ended in the database. Its worker does not know."""
    state = client._engine.state
    (row,) = await client._run((state.get_jobs([chain.id]), None))
    assert row is not None
    assert row.token is not None
    assert await client._run((state.renew([Lease(row.id, row.token, 0)]), None)) == []
