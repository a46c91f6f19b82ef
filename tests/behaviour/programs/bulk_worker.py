"""A worker that does pages of a bulk operation, stops for good at a point of the second one, says so, and waits to be
killed: bulk_worker URL POINT"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.behaviour.programs.talking import say
from tests.behaviour.steps import Step
from tests.behaviour.watching import Points, watched

import queuert
from queuert import Attempt, EntryJob, Handlers, Worker
from queuert.features.bulk import pages as bulk

PAGE = 5
POINTS = ("lock_chains", "retry.done", "settle.done", "committed")
"""Before its chains are locked; after they were changed; after it was settled; after the commit."""


class Other(EntryJob[None], name="other"):
    pass


def handlers_for_other() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Other)
    async def other(attempt: Attempt[Other]) -> None:
        pass

    return handlers


async def main() -> None:
    points, point = Points(), sys.argv[2]
    bulk.PAGE = PAGE

    async def stop() -> None:
        if points.counts["lock_chains"] == 2:
            say("here")
            await asyncio.Event().wait()

    points.at(point, stop)
    async with watched(queuert.connect(sys.argv[1], jobs=[Step, Other]), points) as client:
        await Worker(client, handlers_for_other(), poll_interval=0.05).run()


if __name__ == "__main__":
    asyncio.run(main())
