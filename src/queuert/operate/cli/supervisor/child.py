"""A worker process: loads the user's worker, runs it, and reports to the supervisor."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from queuert.operate.cli.supervisor.channel import Channel
from queuert.operate.cli.supervisor.loading import OpenWorker, load
from queuert.operate.cli.supervisor.logs import set_up_logging
from queuert.operate.cli.supervisor.metrics import text_of_this_process
from queuert.operate.cli.supervisor.stopping import STOP_GRACE, STOPS_WITHIN
from queuert.operate.exits import USAGE, CommandError
from queuert.worker.worker import Worker

logger = logging.getLogger("queuert.supervisor")

BEAT = 0.5
"""Seconds between two reports. They are sent by the event loop, so a loop that is blocked is
silent."""
PARENT_CHECK = 1.0
"""Seconds between two looks at whether the supervisor lives."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("place")
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--until-empty", action="store_true")
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--traceback", action="store_true")
    options = parser.parse_args()
    # The supervisor ends a process that hangs with SIGABRT: this shows where it hangs.
    faulthandler.enable()
    try:
        open_worker = load(options.place)
        set_up_logging(options.log_level)
        code = asyncio.run(_serve(open_worker, socket.socket(fileno=options.channel), until_empty=options.until_empty))
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except Exception as error:
        if options.traceback:
            raise
        text = str(error) if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"
        # In one piece: other processes write to the same terminal.
        sys.stderr.write(f"queuert worker: {' '.join(text.split())}\n")
        code = USAGE
    sys.exit(code)


async def _serve(open_worker: OpenWorker, connected: socket.socket, *, until_empty: bool) -> int:
    channel = await Channel.over(connected)
    channel.send("loaded")
    reporter = _Reporter(channel)
    threading.Thread(target=reporter.watch_parent, name="queuert-parent", daemon=True).start()
    beats = asyncio.create_task(reporter.beat())
    listening = asyncio.create_task(reporter.listen())
    try:
        async with open_worker() as worker:
            reporter.worker = worker
            return await _run(worker, until_empty=until_empty)
    finally:
        reporter.report()
        beats.cancel()
        listening.cancel()
        channel.close()


async def _run(worker: Worker, *, until_empty: bool) -> int:
    running = asyncio.create_task(worker.run())
    if until_empty:
        draining = asyncio.create_task(_drain(worker))
        await asyncio.wait((running, draining), return_when=asyncio.FIRST_COMPLETED)
        if draining.done():
            await asyncio.gather(draining, return_exceptions=True)  # `run` has the same error
            await worker.stop()
        else:
            draining.cancel()
    return await running


async def _drain(worker: Worker) -> None:
    await worker.start()
    await worker.drain()


class _Reporter:
    """Tells the supervisor how the worker is, and answers it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._parent = os.getppid()
        self.worker: Worker | None = None

    async def beat(self) -> None:
        while True:
            if not self._channel.is_full:
                self.report()
            await asyncio.sleep(BEAT)

    def report(self) -> None:
        if self.worker is None:
            self._channel.send("beat")
            return
        health = self.worker.health()
        self._channel.send(
            "beat",
            worker_id=health.worker_id,
            state=health.state,
            ready=health.ready,
            error=health.error,
            running=health.running,
            ended=health.ended,
            stops_within=health.stops_within,
        )

    async def listen(self) -> None:
        """Answer the supervisor. When it is gone, stop as at SIGTERM."""
        async for message in self._channel.messages():
            self._answer(message)
        logger.error("the supervisor is gone: this worker process stops")
        os.kill(os.getpid(), signal.SIGTERM)

    def watch_parent(self) -> None:
        """In a thread. Without a supervisor, no other process kills this one if it hangs."""
        while os.getppid() == self._parent:
            time.sleep(PARENT_CHECK)
        time.sleep((STOPS_WITHIN if self.worker is None else self.worker.health().stops_within) + STOP_GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    def _answer(self, message: dict[str, Any]) -> None:
        if message["kind"] == "metrics":
            self._channel.send("metrics", id=message["id"], text=text_of_this_process())


if __name__ == "__main__":
    main()
