"""A worker that holds many jobs for an hour, and is told to finish number 0: held_worker URL"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.behaviour.programs.talking import say, told_to_go_on
from tests.behaviour.steps import Step

import queuert
from queuert import Attempt, Handlers, Worker

handlers = Handlers[Any]()


@handlers.handles(Step)
async def step(attempt: Attempt[Step]) -> int:
    if attempt.job.number > 0:
        await asyncio.Event().wait()
    say("at work")
    await told_to_go_on()
    return attempt.number


async def main() -> None:
    async with queuert.connect(sys.argv[1], jobs=[Step]) as client:
        await Worker(client, handlers, concurrency=600, lease=3600, renew_interval=20).run()


if __name__ == "__main__":
    asyncio.run(main())
