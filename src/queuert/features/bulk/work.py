"""Carrying out the library's own jobs: by workers, and by commands where there is no worker."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from queuert.base.statuses import TERMINAL
from queuert.engine.operations.reading import get_chain
from queuert.engine.sessions import Sessions
from queuert.features.bulk import own
from queuert.features.bulk.own import Step, StepFailed
from queuert.records.model import JobRow

LOOK_AGAIN = 0.2
"""Seconds until the next look, if another process has the job."""
LONGEST_STEP = 5.0
"""Seconds that a page may take. It may wait for locks while others wait for the locks that it has.
After this time, a smaller page is tried.
"""
TRIES = 10
"""Failures in a row after which a command gives up."""
PAUSE, LONGEST_PAUSE = 0.25, 0.2
"""How long to pause after each job: a part of the time that it took, and the most seconds."""


async def do_step(sessions: Sessions[Any], worker: str) -> Step:
    """Do the next job that is due, in a transaction of its own. Then leave others a moment: on
    SQLite, no other process can write meanwhile.

    Raises `StepFailed` if it fails or takes too long. Then its transaction is rolled back, and the
    error is recorded with the job.
    """
    began, begun = time.monotonic(), list[JobRow]()
    try:
        async with asyncio.timeout(LONGEST_STEP), sessions.transaction() as tx:
            step = await sessions.run(own.step(sessions.engine, tx.hooks, worker, begun), tx.connection)
    except StepFailed as error:
        await _put_back(sessions, worker, error)
        raise
    except TimeoutError:
        if not begun:
            raise
        failed = StepFailed(begun[0])
        failed.__cause__ = TimeoutError(f"it took more than {LONGEST_STEP:g} s, perhaps because of locks")
        await _put_back(sessions, worker, failed)
        raise failed from failed.__cause__
    if step.chain_id is not None:
        await asyncio.sleep(min(LONGEST_PAUSE, PAUSE * (time.monotonic() - began)))
    return step


async def _put_back(sessions: Sessions[Any], worker: str, failed: StepFailed) -> None:
    async with sessions.transaction() as tx:
        await sessions.run(own.put_back(sessions.engine, worker, failed), tx.connection)


async def carry_out(sessions: Sessions[Any], chain_id: str, worker: str) -> None:
    """Do the jobs of this chain, and those of others that come first, until the chain has ended."""
    failures = 0
    while True:
        try:
            step = await do_step(sessions, worker)
            failures = 0
        except StepFailed as error:
            failures += 1
            if failures == TRIES:
                raise
            step = Step(next_in=error.delay)
        if step.chain_id is None or step.next_in:
            chain = await sessions.run(get_chain(sessions.engine, chain_id, None))
            if chain is None or chain.status in TERMINAL:
                return
            await asyncio.sleep(LOOK_AGAIN if step.next_in is None else min(LOOK_AGAIN, step.next_in))
