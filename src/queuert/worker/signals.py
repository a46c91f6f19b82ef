"""Signals that end a process, where they can be handled."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Iterator

from queuert.base.contexts import context

logger = logging.getLogger("queuert.worker")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@context
def calling_on_signals(callback: Callable[[], None]) -> Iterator[None]:
    """While the block runs, call back at SIGTERM and SIGINT.

    Only the main thread receives signals, and not every platform's event loop (on Windows, none).
    Where it does not, the log says so.
    """
    loop = asyncio.get_running_loop()
    installed: list[signal.Signals] = []
    try:
        try:
            for number in SIGNALS:
                loop.add_signal_handler(number, callback)
                installed.append(number)
        except (NotImplementedError, RuntimeError, ValueError) as error:
            logger.warning("this worker runs without signals: SIGTERM and SIGINT do not stop it, call worker.stop() "
                           "(%s)", str(error) or "this event loop cannot handle signals")  # fmt: skip
        yield
    finally:
        for number in installed:
            loop.remove_signal_handler(number)
