"""A worker that archives to files, and waits to be killed: archiving_worker URL DIRECTORY before|after|never"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from typing import Any

from tests.behaviour.programs.talking import say

import queuert
import queuert.features.retention.service
from queuert import ArchivedChain, Attempt, EntryJob, Handlers, JsonLines, Keep, Worker


class Event(EntryJob[int], name="event"):
    pass


handlers = Handlers[Any]()


@handlers.handles(Event)
async def event(attempt: Attempt[Event]) -> int:
    return 1


async def main() -> None:
    url, directory, moment = sys.argv[1:]
    queuert.features.retention.service.INTERVAL = (0.02, 0.05)
    lines = JsonLines(directory, compress=False)

    def archive(tx: Any, chains: Sequence[ArchivedChain]) -> None:
        if moment == "before":
            wait_for_the_end()
        lines(tx, chains)
        if moment == "after":
            wait_for_the_end()

    keep = Keep(completed=0.3, archive=archive)
    async with queuert.connect(url, jobs=[Event], keep=keep) as client, Worker(client, handlers, concurrency=10):
        await asyncio.Event().wait()


def wait_for_the_end() -> None:
    say("archiving")
    threading.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
