"""How long after its commit a job begins: python -m bench.latency [--jobs 300]

One job at a time, for an idle worker. The clock starts when COMMIT has returned, before any
notification is sent. It stops at the first line of the handler. Except for the first row, starter
and worker are two processes on this machine, which share the monotonic clock. Polling is off: only
the channel can wake the worker.

The table is printed, and written to bench/results/latency.md and .json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any

from tests.support.nats import NatsServer
from tests.support.redis import RedisServer

import queuert
from bench.server import server
from queuert import Attempt, EntryJob, Handlers, Worker
from queuert.engine.callbacks import Step
from queuert.engine.transaction import OpenTransaction

RESULTS = Path(__file__).resolve().parent / "results"
HOUR = 3600.0
REST = 0.02
"""Seconds between two jobs, so that the worker becomes idle."""
WARM_UP = 20


class Ping(EntryJob[int], name="ping"):
    """Its result is the time at which its handler began."""


handlers = Handlers[Any]()


@handlers.handles(Ping)
async def ping(attempt: Attempt[Ping]) -> int:  # noqa: ARG001
    return monotonic_ns()


class Stamp:
    """After-commit work that records the time. It runs before all other after-commit work."""

    order = -1

    def __init__(self) -> None:
        self.at = 0

    def checkpoint(self) -> Callable[[], None]:
        return lambda: None

    def steps(self) -> Iterator[Step]:
        self.at = monotonic_ns()
        return iter(())


@dataclass
class Row:
    channel: str
    jobs: int
    p50: float
    """Milliseconds."""
    p99: float


def connect(url: str, options: Any) -> queuert.Client[Any]:
    return queuert.connect(url, jobs=[Ping], poll_interval=HOUR, **options)


@asynccontextmanager
async def worker_process(url: str, options: Any) -> AsyncGenerator[None]:
    """A worker in another process. The block begins when the worker listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.latency", "--worker", url, json.dumps(options),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if await process.stdout.readline() != b"ready\n":
            raise SystemExit("the worker did not start")
        yield
    finally:
        process.stdin.close()
        await process.wait()


async def work(url: str, options: Any) -> None:
    """The other process: it works until its input ends."""
    async with connect(url, options) as client, Worker(client, handlers, poll_interval=HOUR):
        # If a job arrives through the channel, the worker listens.
        async with client.transaction() as tx:
            chain = await client.start(tx, Ping())
        await client.wait(chain)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)


async def measure(channel: str, url: str, options: Any, jobs: int, *, processes: int = 2) -> Row:
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(connect(url, options))
        if processes == 1:
            await stack.enter_async_context(Worker(client, handlers, poll_interval=HOUR))
        else:
            await stack.enter_async_context(worker_process(url, options))
        taken = [await one(client) for _ in range(WARM_UP + jobs)][WARM_UP:]
    percentiles = statistics.quantiles(taken, n=100, method="inclusive")
    return Row(channel, jobs, statistics.median(taken), percentiles[98])


async def one(client: queuert.Client[Any]) -> float:
    """Milliseconds from the commit to the handler."""
    async with client.transaction() as tx:
        assert isinstance(tx, OpenTransaction)
        stamp = tx.hooks.use("stamp", Stamp)
        chain = await client.start(tx, Ping())
    began = await client.wait(chain, timeout=60)
    await asyncio.sleep(REST)
    return (began - stamp.at) / 1e6


async def everything(jobs: int) -> list[Row]:
    rows: list[Row] = []
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        postgres = stack.enter_context(server())
        redis, nats = RedisServer(), NatsServer()
        stack.callback(redis.remove)
        stack.callback(nats.remove)
        file = f"sqlite:///{directory}/jobs.db"
        rows.append(await measure("in-process (SQLite)", file, {"notify": "in-process"}, jobs, processes=1))
        rows.append(await measure("SQLite, watching the file", file, {}, jobs))
        for name, options in (
            ("PostgreSQL, LISTEN and NOTIFY", {}),
            ("Redis (jobs in PostgreSQL)", {"notify": redis.url}),
            ("NATS (jobs in PostgreSQL)", {"notify": nats.url}),
            ("NATS with wake hints", {"notify": nats.url, "notify_bucket": "hints"}),
        ):
            async with postgres.database() as url:
                rows.append(await measure(name, url, options, jobs))
    return rows


def markdown(rows: list[Row]) -> str:
    lines = ["| channel | processes | p50, ms | p99, ms |", "| --- | ---: | ---: | ---: |"]
    for row in rows:
        processes = 1 if row.channel.startswith("in-process") else 2
        lines.append(f"| {row.channel} | {processes} | {row.p50:.1f} | {row.p99:.1f} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.latency", description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--worker", nargs=2, metavar=("URL", "OPTIONS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.worker:
        asyncio.run(work(chosen.worker[0], json.loads(chosen.worker[1])))
        return
    rows = asyncio.run(everything(chosen.jobs))
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latency.json").write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n", "utf-8")
    (RESULTS / "latency.md").write_text(markdown(rows), "utf-8")
    print(markdown(rows))


if __name__ == "__main__":
    main()
