"""A worker that kills itself while it holds jobs ahead, and notes each handler that begins:
killed_ahead URL FILE SECONDS

SECONDS: how long a handler takes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from tests.behaviour.steps import Step

import queuert
from queuert import Attempt, Handlers, Worker
from queuert.worker.claims import filling
from queuert.worker.policy.prefetch import Prefetch

LEASE = 60.0
SLOTS = 10
BEGUN, HELD = 500, 100
"""It dies when so many have begun, and so many more are held ahead."""


def noting_handlers(path: str, seconds: float, then: Callable[[], None]) -> Handlers[Any]:
    """Handlers that note in a file that they began, before they do anything else. One loss each is too many."""
    handlers = Handlers[Any]()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @handlers.handles(Step, max_losses=1)
    async def step(attempt: Attempt[Step]) -> int:
        os.write(file, f"{attempt.job_id}\n".encode())
        then()
        await asyncio.sleep(seconds)
        return attempt.job.number

    return handlers


def hold_many(prefetch: Prefetch, _ended: int, _now: float) -> None:
    """As on a quick machine, also on one that stands still now and then."""
    prefetch.ahead = 3 * HELD


async def main() -> None:
    url, path, seconds = sys.argv[1:]
    begun = 0

    def die_in_time() -> None:
        nonlocal begun
        begun += 1
        run = worker._run
        if begun >= BEGUN and run is not None and run._attempts.waiting >= HELD:
            os.kill(os.getpid(), signal.SIGKILL)

    async with queuert.connect(url, jobs=[Step]) as client:
        worker = Worker(client, noting_handlers(path, float(seconds), die_in_time), concurrency=SLOTS, lease=LEASE)
        with patch.object(Prefetch, "observe", hold_many), patch.object(filling, "STALE", 3600.0):
            await worker.run()


if __name__ == "__main__":
    asyncio.run(main())
