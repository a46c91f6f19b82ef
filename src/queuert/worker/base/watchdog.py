"""Notices handlers that block the event loop: nothing else runs meanwhile, not even the renewal of
leases.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable

logger = logging.getLogger("queuert.worker")

BLOCKED_AFTER = 1.0
LOOK_EVERY = 0.25


class Watchdog:
    """A thread that checks whether the loop responds. Each job type is reported once."""

    def __init__(self, type_of: Callable[[asyncio.Task[object]], str | None]) -> None:
        self._type_of = type_of
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._answered = threading.Event()
        self._reported: set[str] = set()
        self._thread = threading.Thread(target=self._watch, name="queuert-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        # So that a thread which waits for an answer sees the stop at once.
        self._answered.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            self._answered.clear()
            if self._stop.is_set():  # the stop may have been set before the event was cleared
                return
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._answered.set)
            except RuntimeError:
                return  # the loop is closed
            if self._answered.wait(BLOCKED_AFTER):
                continue
            # Read this now: when the loop answers, the handler may have ended.
            task = asyncio.current_task(self._loop)
            type_name = None if task is None else self._type_of(task)
            self._answered.wait()
            if type_name is not None:
                self._report(type_name, time.monotonic() - asked)

    def _report(self, type_name: str, lag: float) -> None:
        if type_name in self._reported:
            return
        self._reported.add(type_name)
        logger.warning(
            "a handler of %r blocked the event loop for %.1f s: leases cannot be renewed meanwhile. "
            "Use async libraries, asyncio.to_thread(), or make the handler a plain `def`",
            type_name,
            lag,
            extra={"job_type": type_name, "lag": lag},
        )
