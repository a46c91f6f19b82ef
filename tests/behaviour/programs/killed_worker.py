"""A worker that comes to a point in job 1, says so, and waits there to be killed: killed_worker URL POINT"""

from __future__ import annotations

import asyncio
import sys
from inspect import isawaitable
from typing import Any

from tests.behaviour.programs.talking import say
from tests.behaviour.steps import Step
from tests.behaviour.watching import Points, watched

import queuert
from queuert import Attempt, Handlers, Worker

POINTS = (
    "before prepare",
    "in prepare",
    "between",
    "before the write",
    "after the write",
    "after complete",
    "settle",
    "settle.done",
    "commit",
    "committed",
)
"""The last four are the engine's: before and after the settlement, before and after COMMIT."""

LEASE = 60.0


def ledger_handlers(point: str, points: Points) -> Handlers[Any]:
    """Handlers that write a line per job into a table of their own; at `point` of job 1 they stop for good."""
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        number = attempt.job.number

        async def reach(name: str) -> None:
            if number == 1 and name == point:
                await forever()

        await reach("before prepare")
        if point != "before prepare":
            async with attempt.prepare("staged"):
                await reach("in prepare")
        await asyncio.sleep(0)
        await reach("between")
        if number == 1 and point in ("settle", "settle.done", "commit", "committed"):
            points.at(point, forever)
        async with attempt.complete() as tx:
            await reach("before the write")
            written = tx.connection.execute(f"INSERT INTO ledger (number) VALUES ({number})")
            if isawaitable(written):  # sqlite3 has nothing to wait for
                await written
            await reach("after the write")
        await reach("after complete")
        return number

    return handlers


async def forever() -> None:
    say("here")
    await asyncio.Event().wait()


async def main() -> None:
    points = Points()
    client = watched(queuert.connect(sys.argv[1], jobs=[Step]), points)
    async with client:
        await Worker(client, ledger_handlers(sys.argv[2], points), lease=LEASE).run()


if __name__ == "__main__":
    asyncio.run(main())
