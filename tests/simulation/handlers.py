"""The handlers of the simulation."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.simulation.jobs import Capped, Effect, InThread, Join, Last, Work
from tests.simulation.limited import handle as handle_limited
from tests.simulation.process import Process

from queuert import Attempt, Handlers, Middleware, SyncAttempt

if TYPE_CHECKING:
    from tests.simulation.world import World

LONG = 25.0
"""Seconds: more than two leases."""


class Watched(Middleware):
    """The world looks at every attempt."""

    def __init__(self, world: World, process: Process) -> None:
        self._world = world
        self._process = process

    async def wrap_handler(self, attempt: Any, call_next: Any) -> Any:
        with self._world.attempt(self._process, attempt):
            return await call_next()


def handlers_of(world: World, process: Process) -> Handlers[Any]:
    handlers = Handlers[Any](middleware=[Watched(world, process)])

    async def think(longest: float = 8.0) -> None:
        """Something outside of the database."""
        await asyncio.sleep(longest * process.shared.random.random() ** 3)
        await process.while_alive()

    @handlers.handles(Work)
    async def work(attempt: Attempt[Work]) -> int | Last:
        job = attempt.job
        if job.kind == "atomic":
            async with attempt.complete() as tx:
                await attempt.client.start(tx, Effect(origin=attempt.job_id))
                # Not for long: nobody else can write meanwhile, and no lease can be renewed.
                await think(0.3)
                _fail(attempt, job.failures)
        elif job.kind == "staged":
            async with attempt.prepare("staged"):
                await think(0.3)
            await think()
            _fail(attempt, job.failures)
            async with attempt.complete() as tx:
                await attempt.client.start(tx, Effect(origin=attempt.job_id))
        else:
            await asyncio.sleep(LONG if job.kind == "long" else 0.1)
            await think()
            _fail(attempt, job.failures)
        return Last(number=1) if job.goes_on else 1

    @handlers.handles(Last)
    async def last(attempt: Attempt[Last]) -> int:
        async with attempt.complete() as tx:
            await attempt.client.start(tx, Effect(origin=attempt.job_id))
        return attempt.job.number

    @handlers.handles(Capped)
    async def capped(attempt: Attempt[Capped]) -> int:
        await think()
        return attempt.job.number

    @handlers.handles(Join)
    async def join(attempt: Attempt[Join]) -> int:
        async with attempt.complete() as tx:
            await attempt.client.start(tx, Effect(origin=attempt.job_id))
        return sum(part.output for part in attempt.job.parts)

    @handlers.handles(InThread)
    def in_thread(attempt: SyncAttempt[InThread]) -> int:
        _fail(attempt, attempt.job.failures)
        return 1

    handle_limited(handlers, world, think)
    return handlers


def _fail(attempt: Any, failures: int) -> None:
    if attempt.number <= failures:
        raise ValueError(f"attempt {attempt.number} fails")
