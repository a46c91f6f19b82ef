"""The worker that the tests of `queuert worker` run: URL and directory come from the environment."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import queuert
from queuert import Attempt, Backoff, Chain, EntryJob, Handlers, Worker

PLACE = Path(os.environ["QUEUERT_TEST_PLACE"])

if (PLACE / "broken").exists():
    raise RuntimeError("this release is broken")
if (PLACE / "dying").exists():
    os._exit(7)


class Greet(EntryJob[int], name="greet"):
    """Returns the id of the process that ran it."""


class Hold(EntryJob[int], name="hold"):
    """Runs until there is a file with this name."""

    gate: str


class Block(EntryJob[int], name="block"):
    """Blocks the event loop, the first time."""


class Spread(EntryJob[int], name="spread"):
    """Starts a `Hold` for each of these gates, when there is a file with the name of its own."""

    gate: str
    gates: list[str]


class Fail(EntryJob[int], name="fail"):
    """Fails, and would be tried again in an hour."""


class Sum(EntryJob[int], name="sum"):
    parts: list[Chain[Fail]]


JOBS: list[Any] = [Greet, Hold, Block, Spread, Fail, Sum]
handlers = Handlers[Any]()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet]) -> int:
    return os.getpid()


@handlers.handles(Hold)
async def hold(attempt: Attempt[Hold]) -> int:
    (PLACE / f"{attempt.job.gate}-reached").write_text(str(os.getpid()))
    while not (PLACE / attempt.job.gate).exists():
        await asyncio.sleep(0.02)
    return os.getpid()


@handlers.handles(Spread)
async def spread(attempt: Attempt[Spread]) -> int:
    (PLACE / f"{attempt.job.gate}-reached").write_text(str(os.getpid()))
    while not (PLACE / attempt.job.gate).exists():
        await asyncio.sleep(0.02)
    async with attempt.complete() as tx:
        for gate in attempt.job.gates:
            await attempt.client.start(tx, Hold(gate=gate))
        return os.getpid()


@handlers.handles(Fail, backoff=Backoff(initial=3600, maximum=3600))
async def fail(attempt: Attempt[Fail]) -> int:
    raise ValueError(f"no\nattempt {attempt.number}")


@handlers.handles(Sum)
async def add(attempt: Attempt[Sum]) -> int:
    return 0


@handlers.handles(Block)
async def block(attempt: Attempt[Block]) -> int:
    if not attempt.may_have_run:
        (PLACE / "blocked").write_text(str(os.getpid()))
        time.sleep(3600)  # noqa: ASYNC251
    return os.getpid()


def make() -> Worker:
    observers: list[Any] = []
    if "opentelemetry" in os.environ.get("QUEUERT_TEST_WITH", ""):
        from opentelemetry import metrics
        from opentelemetry.exporter.prometheus import PrometheusMetricReader
        from opentelemetry.sdk.metrics import MeterProvider

        from queuert.otel import OpenTelemetry

        metrics.set_meter_provider(MeterProvider([PrometheusMetricReader()]))
        observers.append(OpenTelemetry())
    client = queuert.connect(os.environ["QUEUERT_TEST_URL"], jobs=JOBS, observers=observers)
    timeout = float(os.environ.get("QUEUERT_TEST_SHUTDOWN", "60"))
    return Worker(client, handlers, poll_interval=0.1, shutdown_timeout=timeout, concurrency=2)


worker = make()


async def make_async() -> Worker:
    return worker


@asynccontextmanager
async def make_within() -> AsyncGenerator[Worker]:
    async with worker.client:
        yield worker
    sys.stderr.write("closed\n")


async def forgets() -> None:
    """It returns nothing."""


def needs_configuration() -> Worker:
    raise KeyError("DATABASE_URL")
