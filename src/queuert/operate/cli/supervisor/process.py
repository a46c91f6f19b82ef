"""One worker process, as the supervisor sees it."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from queuert.operate.cli.supervisor import systemd
from queuert.operate.cli.supervisor.channel import Channel
from queuert.operate.cli.supervisor.loading import PATH
from queuert.operate.cli.supervisor.stopping import STOP_GRACE, STOPS_WITHIN

logger = logging.getLogger("queuert.supervisor")

TO_SHOW_STACKS = 2.0
"""Seconds between SIGABRT, at which Python writes the stacks of all threads to stderr, and
SIGKILL."""


class WorkerProcess:
    """`number` tells which of the processes it is, from 0. `changed` is called when its state
    changes.
    """

    def __init__(self, number: int, changed: Callable[[], None]) -> None:
        self.number = number
        self._changed = changed
        self.pid = 0
        self.code: int | None = None
        """How it has ended: the exit code, or minus the signal that killed it."""
        self.loaded = asyncio.Event()
        """The user's code is imported."""
        self.was_ready = asyncio.Event()
        self.ended = asyncio.Event()
        self.state: dict[str, Any] = {}
        """Its last report."""
        self.silent_for = 0.0
        """Seconds since its last report, without the time in which the supervisor did not run."""
        self.is_retired = False
        """It was told to stop, so its end is no surprise."""
        self.is_hung = False
        """It was killed because it did not answer."""
        self._stopping_for: float | None = None
        self._questions = itertools.count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, arguments: Sequence[str]) -> None:
        ours, theirs = socket.socketpair()
        try:
            environment = {name: value for name, value in os.environ.items() if name not in systemd.VARIABLES}
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "queuert.operate.cli.supervisor.child",
                *arguments,
                f"--channel={theirs.fileno()}",
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Ctrl-C reaches the whole group of a terminal. Only the supervisor may get it:
                # it tells its processes, and a second signal means something else to them.
                process_group=0,
                env={**environment, "QUEUERT_PROCESS": str(self.number), PATH: os.pathsep.join(sys.path)},
            )  # fmt: skip
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pid = process.pid
        channel = await Channel.over(ours)
        self._channel = channel
        self._tasks = [asyncio.create_task(self._listen(channel)), asyncio.create_task(self._wait(process))]

    @property
    def is_ready(self) -> bool:
        return not self.ended.is_set() and not self.is_retired and bool(self.state.get("ready"))

    @property
    def jobs_ended(self) -> int:
        return int(self.state.get("ended", 0))

    async def _listen(self, channel: Channel) -> None:
        async for message in channel.messages():
            self.silent_for = 0.0
            if message["kind"] == "loaded":
                self.loaded.set()
                self._changed()
            elif message["kind"] == "answer":
                asked = self._answers.pop(message["id"], None)
                if asked is not None and not asked.done():
                    asked.set_result(message["found"])
            else:
                self._report(message)

    def _report(self, message: dict[str, Any]) -> None:
        before = (self.state.get("state"), self.state.get("ready"))
        self.state = message
        if message.get("ready"):
            self.was_ready.set()
        if before != (message.get("state"), message.get("ready")):
            self._changed()

    async def _wait(self, process: asyncio.subprocess.Process) -> None:
        self.code = await process.wait()
        self._channel.close()
        for asked in self._answers.values():
            if not asked.done():
                asked.set_result(None)
        self.ended.set()
        self._changed()

    def retire(self) -> None:
        """Let it finish its jobs and end. The second time, it does not wait for its jobs."""
        self.is_retired = True
        if self._stopping_for is None:
            self._stopping_for = 0.0
        self.send(signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Safe while `ended` is not set: until then its pid is not used again."""
        if not self.ended.is_set() and self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def check(self, passed: float, *, start_timeout: float, kill_after: float) -> None:
        """Called all the time. Ends the process if it does not answer, or does not end."""
        if self.ended.is_set() or self.is_hung:
            return
        self.silent_for += passed
        limit = kill_after if self.loaded.is_set() else start_timeout
        if limit and self.silent_for > limit:
            self._kill(f"has not answered for {self.silent_for:.0f} s")
        elif self._stopping_for is not None:
            self._stopping_for += passed
            if self._stopping_for > self.state.get("stops_within", STOPS_WITHIN) + STOP_GRACE:
                self._kill(f"has not ended {self._stopping_for:.0f} s after it was told to stop")

    def _kill(self, why: str) -> None:
        self.is_hung = True
        logger.error("worker process %d %s: it is killed. Where it is now:", self.pid, why)
        self.send(signal.SIGABRT)
        self._tasks.append(asyncio.create_task(self._kill_surely()))

    async def _kill_surely(self) -> None:
        await asyncio.sleep(TO_SHOW_STACKS)
        self.send(signal.SIGKILL)

    async def ask(self, kind: str, *, timeout: float | None = None, **asked: Any) -> Any:
        """None if it does not answer in time, or has ended."""
        if self.ended.is_set() or not self.loaded.is_set():
            return None
        question = next(self._questions)
        self._answers[question] = answer = asyncio.get_running_loop().create_future()
        self._channel.send(kind, id=question, **asked)
        try:
            await asyncio.wait({answer}, timeout=timeout)
        finally:
            self._answers.pop(question, None)
        return answer.result() if answer.done() else None

    def how_it_ended(self) -> str:
        if self.code is None or self.code >= 0:
            return f"ended with exit code {self.code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"was killed by signal {-self.code}"
