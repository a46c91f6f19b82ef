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
from queuert.operate.cli.supervisor.loading import PATH, OpenWorker, load, use_path
from queuert.operate.cli.supervisor.logs import set_up_logging
from queuert.operate.cli.supervisor.metrics import text_of_this_process
from queuert.operate.cli.supervisor.stopping import STOP_GRACE, STOPS_WITHIN
from queuert.operate.cli.supervisor.until import ended, left
from queuert.operate.exits import USAGE, CommandError
from queuert.operate.terminal import clean, hidden
from queuert.worker.worker import Worker, quiet

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
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--log-format", default="text")
    parser.add_argument("--traceback", action="store_true")
    options = parser.parse_args()
    # The supervisor ends a process that hangs with SIGABRT: this shows where it hangs.
    faulthandler.enable()
    try:
        use_path(os.environ.pop(PATH, ""))
        open_worker = load(options.place)
        set_up_logging(options.log_level, options.log_format)
        code = asyncio.run(_serve(open_worker, socket.socket(fileno=options.channel)))
    except KeyboardInterrupt:
        code = 128 + signal.SIGINT
    except Exception as error:
        if options.traceback:
            raise
        text = str(error) if isinstance(error, CommandError) else f"{type(error).__name__}: {error}"
        # In one piece: other processes write to the same terminal.
        sys.stderr.write(f"queuert worker: {hidden(clean(' '.join(text.split())))}\n")
        code = USAGE
    sys.exit(code)


async def _serve(open_worker: OpenWorker, connected: socket.socket) -> int:
    channel = await Channel.over(connected)
    channel.send("loaded")
    reporter = _Reporter(channel)
    threading.Thread(target=reporter.watch_parent, name="queuert-parent", daemon=True).start()
    beats = asyncio.create_task(reporter.beat())
    listening = asyncio.create_task(reporter.listen())
    try:
        async with open_worker() as worker:
            reporter.worker = worker
            return await worker.run()
    finally:
        reporter.report()
        for task in (beats, listening, *reporter.answering):
            task.cancel()
        channel.close()


class _Reporter:
    """Tells the supervisor how the worker is, and answers it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._parent = os.getppid()
        self.worker: Worker | None = None
        self.answering: set[asyncio.Task[None]] = set()

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
            task = asyncio.create_task(self._answer(**message))
            self.answering.add(task)
            task.add_done_callback(self.answering.discard)
        logger.error("the supervisor is gone: this worker process stops")
        os.kill(os.getpid(), signal.SIGTERM)

    def watch_parent(self) -> None:
        """In a thread. Without a supervisor, no other process kills this one if it hangs."""
        while os.getppid() == self._parent:
            time.sleep(PARENT_CHECK)
        time.sleep((STOPS_WITHIN if self.worker is None else self.worker.health().stops_within) + STOP_GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    async def _answer(self, kind: str, id: int, **asked: Any) -> None:
        """A question that cannot be answered gets None."""
        found: Any = None
        try:
            if kind == "metrics":
                found = text_of_this_process()
            elif self.worker is not None:
                found = await _look(self.worker, kind, **asked)
        except Exception as error:
            logger.warning("this worker process could not answer %r: %s", kind, error)
        self._channel.send("answer", id=id, found=found)


async def _look(worker: Worker, kind: str, **asked: Any) -> Any:
    if kind == "quiet":
        return await quiet(worker)
    if kind == "left":
        return await left(worker)
    return await ended(worker.client, **asked)


if __name__ == "__main__":
    main()
