"""How a contender talks to the harness. Its task is the first argument, as JSON. Both send lines of
JSON.

It uses only the standard library, and uvloop if it is installed, because contenders run in their
own environments.

A contender gives `run` three coroutines:

- `prepare(task)` creates the schema and stores `task.jobs` jobs;
- `work(task, line)` opens what it needs, awaits `line.ready()`, starts its worker, which counts the
  jobs it has handled in `line.done`, and awaits `line.stopped()`;
- `measure(task)` measures on its own and returns the figures.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

TICK = 0.005
"""Seconds between two progress reports."""


@dataclass(frozen=True)
class Task:
    step: str
    work: str
    url: str
    jobs: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def payload(self, number: int) -> dict[str, Any]:
        """The same for every contender."""
        return {"order_id": number, "who": "somebody", "amount": 99}


class Line:
    """The harness at the other end of stdin and stdout."""

    def __init__(self) -> None:
        self.done = 0
        self.began: dict[int, float] = {}
        """The time at which a job's handler began, by the job's number. For the pick-up latency."""
        self._reader = asyncio.StreamReader()

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), sys.stdin)

    async def ready(self) -> None:
        """Everything is connected. Wait for the start."""
        say({"ready": True})
        await self.word()

    async def word(self) -> str:
        """The next message of the harness."""
        return (await self._reader.readline()).decode().strip()

    async def stopped(self, running: asyncio.Future[Any] | None = None) -> None:
        """Report progress until the harness sends stop.

        `running` is a worker that must not end before that.
        """
        told = asyncio.ensure_future(self.word())
        last = 0
        while not told.done():
            await asyncio.sleep(TICK)
            if self.done != last:
                last = self.done
                say({"done": last})
            if running is not None and running.done() and not told.done():
                running.result()
                raise RuntimeError("the worker ended before the stop message")


async def at_once(task: Task, start: Callable[[int], Awaitable[object]]) -> float:
    """The rate at which so many tasks at once start all jobs, each one by one."""
    numbers = iter(range(task.jobs))

    async def loop() -> None:
        for number in numbers:
            await start(number)

    began = time.perf_counter()
    await asyncio.gather(*(loop() for _ in range(task.options["tasks"])))
    return task.jobs / (time.perf_counter() - began)


def say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def run(
    prepare: Callable[[Task], Awaitable[None]],
    work: Callable[[Task, Line], Awaitable[None]] | None,
    measure: Callable[[Task], Awaitable[dict[str, Any]]],
) -> None:
    task = Task(**json.loads(sys.argv[1]))

    async def main() -> dict[str, Any]:
        if task.step == "prepare":
            await prepare(task)
            return {}
        if task.step == "measure":
            return await measure(task)
        assert work is not None
        line = Line()
        await line.open()
        await work(task, line)
        return {"done": line.done, "began": line.began}

    say({"result": _run(main())})


def _run(main: Any) -> Any:
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)
