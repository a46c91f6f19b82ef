"""A worker with the default lease that says "at work" in each job, and waits to be told: held_worker URL"""

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
    say("at work")
    await told_to_go_on()
    return attempt.number


async def main() -> None:
    async with queuert.connect(sys.argv[1], jobs=[Step]) as client:
        await Worker(client, handlers).run()


if __name__ == "__main__":
    asyncio.run(main())
