"""A worker that knows one type of a queue with a cap, and nothing of the others: capped_worker URL NAME

It says "NAME 3" when a handler begins while three jobs are running in all, and stays in the one with the number 0.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from tests.behaviour.programs.talking import say

import queuert
from queuert import Attempt, EntryJob, Handlers, Queue, Worker

CAP = 3
LEASE = 60.0


class First(EntryJob[None], name="first", queue="shared"):
    number: int


class Second(EntryJob[None], name="second"):
    """Belongs to the queue only by its handler."""

    number: int


class Third(EntryJob[None], name="third", queue="shared"):
    number: int


KNOWN: dict[str, Any] = {"first": First, "second": Second, "third": Third}


async def main(url: str, name: str) -> None:
    handlers = Handlers[Any]()
    known = KNOWN[name]

    @handlers.handles(known, queue="shared")
    async def work(attempt: Attempt[Any]) -> None:
        running = await attempt.client.list_jobs(status="running", limit=1000)
        say(f"{name} {len(running.items)}")
        if attempt.job.number == 0 and attempt.number == 1:
            say(f"{name} stays")
            await asyncio.Event().wait()

    async with queuert.connect(url, jobs=[known], poll_interval=0.05) as client:
        queues = [Queue("shared", max_concurrency=CAP)]
        await Worker(client, handlers, queues=queues, concurrency=10, lease=LEASE, poll_interval=0.02).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
