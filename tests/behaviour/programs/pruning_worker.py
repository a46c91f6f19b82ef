"""A worker whose chains are kept for a few seconds, until it is killed: pruning_worker URL"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.behaviour.programs.talking import say

import queuert
from queuert import Attempt, Backoff, Chain, EntryJob, Handlers, JobError, Keep, Worker

KEPT = 4.0


class Event(EntryJob[int], name="event", keep=Keep(completed=KEPT, failed=2 * KEPT, cancelled=KEPT)):
    number: int


class Stuck(EntryJob[int], name="stuck", keep=Keep(cancelled=KEPT)):
    """Its worker is missing, so it stays until it is cancelled. Until then, its event is needed."""

    event: Chain[Event]


handlers = Handlers[Any]()


@handlers.handles(Event)
async def event(attempt: Attempt[Event]) -> int:
    if attempt.job.number % 500 == 0:
        raise JobError("NO", "one of five hundred fails")
    return attempt.job.number


async def main() -> None:
    async with queuert.connect(sys.argv[1], jobs=[Event, Stuck]) as client:
        worker = Worker(
            client, handlers, concurrency=20, max_attempts=1, lease=5, backoff=Backoff(initial=0.1, maximum=1)
        )
        async with worker:
            say("ready")
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
