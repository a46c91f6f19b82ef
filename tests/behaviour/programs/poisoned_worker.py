"""A worker that one of its jobs kills: poisoned_worker URL SECONDS

SECONDS: how long each of the healthy jobs takes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from tests.behaviour.steps import Step

import queuert
from queuert import Attempt, Backoff, Handlers, Worker

POISON = 99
"""The number of the job that ends the process."""


def poisoned_handlers(seconds: float) -> Handlers[Any]:
    handlers = Handlers[Any](max_attempts=5, backoff=Backoff(initial=0.2))

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.job.number == POISON:
            await asyncio.sleep(seconds / 3)  # its neighbours have begun
            os.kill(os.getpid(), signal.SIGSEGV)
        await asyncio.sleep(seconds)
        return attempt.number

    return handlers


async def main() -> None:
    url, seconds = sys.argv[1:]
    async with queuert.connect(url, jobs=[Step]) as client:
        await Worker(client, poisoned_handlers(float(seconds)), concurrency=5, poll_interval=0.1).run()


if __name__ == "__main__":
    asyncio.run(main())
