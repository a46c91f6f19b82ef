"""Starts jobs without a break until it is told to end; then says how many it started, and how many announcements
failed: announcing URL NOTIFY"""

from __future__ import annotations

import asyncio
import sys

from tests.behaviour.programs.talking import say, told_to_go_on
from tests.behaviour.steps import Step, start

import queuert
from queuert.engine import publishing

PATIENCE = 1.0
"""Seconds. The test stops this process for longer."""


async def main() -> None:
    publishing.PUBLISH_SECONDS = PATIENCE
    async with queuert.connect(sys.argv[1], jobs=[Step], notify=sys.argv[2]) as client:
        await start(client)
        say("started")
        end = asyncio.create_task(told_to_go_on())
        number = 0
        while not end.done():
            await start(client)
            number += 1
            await asyncio.sleep(0)  # so that it hears when it is told, also if nothing waits here
        say(f"{client.hook_failures} of {number} failed")


if __name__ == "__main__":
    asyncio.run(main())
