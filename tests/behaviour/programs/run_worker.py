"""Runs a worker until a signal comes, and ends with its exit code: run_worker URL idle|working|stubborn|deaf"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from tests.behaviour.conftest import Entry
from tests.behaviour.programs.talking import say, told_to_go_on
from tests.behaviour.steps import Step

import queuert
from queuert import Attempt, Handlers, Worker

handlers = Handlers[Any]()
mood = sys.argv[2]


@handlers.handles(Step)
async def step(attempt: Attempt[Step]) -> int:
    say("at work")
    if mood == "working":
        await told_to_go_on()
        return 1
    if mood == "deaf":
        # Asked to stop, it takes note and goes on for ever.
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                say("not listening")
    try:
        await asyncio.Event().wait()
    finally:
        say(f"aborted: {attempt.signal.reason}")
    return 2


class Announcing(logging.Handler):
    """Says when the worker has understood the first signal."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().endswith("stopping"):
            say("stopping")


async def main() -> int:
    logging.getLogger("queuert.worker").addHandler(Announcing())
    logging.getLogger("queuert.worker").setLevel("INFO")
    async with queuert.connect(sys.argv[1], jobs=[Step, Entry]) as client:
        timeout = 0.05 if mood == "deaf" else 60
        worker = Worker(client, handlers, shutdown_timeout=timeout, poll_interval=0.05)
        running = asyncio.create_task(worker.run())
        if mood == "idle":
            await asyncio.sleep(0)
            say("at work")
        code = await running
        say(f"stopped: {code}")
        return code


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
