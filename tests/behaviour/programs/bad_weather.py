"""What workers share that are killed, cut off and stopped while they work."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import isawaitable
from typing import Any

import queuert
from queuert import Attempt, Backoff, Handlers, Job, Worker

LEASE = 4.0


async def complete_with(attempt: Attempt[Any, Any], statement: str) -> None:
    """The effect of a job: a row in a table of the user's, committed with the job."""
    async with attempt.complete() as tx:
        written = tx.connection.execute(statement)
        if isawaitable(written):  # sqlite3 has nothing to wait for
            await written


async def work(url: str, jobs: Sequence[type[Job[Any, Any]]], handlers: Handlers[Any], concurrency: int) -> None:
    """Until the process is killed."""
    client = queuert.connect(url, jobs=jobs)
    worker = Worker(
        client,
        handlers,
        concurrency=concurrency,
        lease=LEASE,
        poll_interval=0.5,
        backoff=Backoff(initial=0.05, maximum=0.5),
        recovery_backoff=Backoff(initial=0.1, maximum=1.0),
    )
    async with client:
        await worker.run()
