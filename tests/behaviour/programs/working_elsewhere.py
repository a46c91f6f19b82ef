"""A worker that would look for itself once an hour: working_elsewhere URL"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.behaviour.programs.talking import say
from tests.behaviour.steps import Step

import queuert
from queuert import Attempt, Handlers, Worker

HOUR = 3600.0
WAITS = -1
"""The number of a step that waits to be stopped."""

handlers = Handlers[Any]()


@handlers.handles(Step)
async def step(attempt: Attempt[Step]) -> int:
    if attempt.job.number != WAITS:
        return attempt.job.number * 2
    say("at work")
    try:
        await asyncio.Event().wait()
    finally:
        say(f"aborted: {attempt.signal.reason}")
    return 0


async def main() -> None:
    async with queuert.connect(sys.argv[1], jobs=[Step], poll_interval=HOUR) as client:
        worker = Worker(client, handlers, poll_interval=HOUR, lease=HOUR, concurrency=2)
        async with worker:
            await worker.drain()  # it has asked, and listens
            say("idle")
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
