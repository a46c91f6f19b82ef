"""A worker that completes a chain with many dependents, stops for good at a point, says so, and waits to be killed:
freeing_worker URL POINT"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.behaviour.programs.talking import say
from tests.behaviour.steps import Step
from tests.behaviour.watching import Points, watched

import queuert
from queuert import Attempt, Chain, EntryJob, Handlers, Worker
from queuert.worker.attempts import unblocking

AT_ONCE, STEP = 5, 7
"""How many dependents are freed with the completion, and in each step after it."""
POINTS = ("settle", "settle.done", "continue_unblocking", "continue_unblocking.done")
"""Before and after the completion; before and after the second step."""


class Behind(EntryJob[int], name="behind"):
    step: Chain[Step]


def handlers_for() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    return handlers


async def main() -> None:
    points, point = Points(), sys.argv[2]
    unblocking.MAX_STEP = STEP
    inner = queuert.connect(sys.argv[1], jobs=[Step, Behind])
    inner.sessions.storage.operations.unblocked_at_once = AT_ONCE
    times = 0

    async def stop() -> None:
        nonlocal times
        times += 1
        if times == (2 if point.startswith("continue") else 1):
            say("here")
            await asyncio.Event().wait()

    points.at(point, stop)
    if point == "settle.done":
        # Another task may begin to free the rest before the kill arrives.
        points.hold("continue_unblocking")
    async with watched(inner, points) as client:
        await Worker(client, handlers_for(), lease=60, poll_interval=0.05).run()


if __name__ == "__main__":
    asyncio.run(main())
