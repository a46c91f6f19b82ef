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
from queuert import Attempt, EntryJob, Handlers, Worker

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


JOBS: list[Any] = [Greet, Hold, Block]
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
