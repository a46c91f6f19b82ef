"""An event loop with virtual time, and everything else that makes a run depend on its seed alone.

Nothing here waits: when no task can go on, the time jumps to the next timer. If there is no timer either, nothing would
ever happen again, and the run ends with an error.
"""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest import mock

from queuert.records import model
from queuert.worker.attempts import execution
from queuert.worker.base import watchdog

T = TypeVar("T")


BUSY = 100_000
"""Turns of the loop without any time in between."""


class Stuck(AssertionError):
    """Every task waits for something that nobody will do, or one of them never waits."""


class SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._now = 1_000.0
        self._turns = 0
        """Since the time has last moved."""
        super().__init__(_NoInput(self._jump))

    def time(self) -> float:
        return self._now

    def _jump(self, timeout: float | None) -> None:
        if timeout is None:
            raise Stuck("no task can go on, and no timer is set")
        self._turns = 0 if timeout > 0 else self._turns + 1
        if self._turns > BUSY:
            raise Stuck("a task goes on and on without waiting for anything")
        self._now += max(0.0, timeout)


class _NoInput(selectors.SelectSelector):
    """No input ever comes: instead of waiting for it, time passes."""

    def __init__(self, jump: Callable[[float | None], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._jump(timeout)
        return []


class _Inline:
    """A thread of a plain `def` handler: here it runs on the loop, a moment later."""

    def __init__(self, target: Callable[[], None], **_: Any) -> None:
        self._target = target

    def start(self) -> None:
        asyncio.get_running_loop().call_later(random.random(), self._target)


def simulate(seed: int, main: Callable[[SimulatedLoop], Coroutine[Any, Any, T]]) -> T:
    """Run it to its end. The same seed gives the same run."""
    loop = SimulatedLoop()
    with _determined(seed, loop):
        try:
            return loop.run_until_complete(main(loop))
        finally:
            _end(loop)


def _end(loop: SimulatedLoop) -> None:
    """Processes that were killed have left tasks behind, which would complain when they are collected."""
    for _ in range(3):
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        for task in left:
            try:
                loop.run_until_complete(asyncio.wait({task}, timeout=1))
            except Stuck:
                continue
    loop.close()


@contextmanager
def _determined(seed: int, loop: SimulatedLoop) -> Generator[None, None, None]:
    """Clocks, random numbers and threads are the loop's."""
    state = random.getstate()
    random.seed(seed)
    drawn = random.Random(f"urandom {seed}")
    with ExitStack() as patches:
        for owner, name, value in (
            (time, "monotonic", loop.time),
            (time, "time", lambda: 1.8e9 + loop.time()),
            (time, "time_ns", lambda: int((1.8e9 + loop.time()) * 1e9)),
            (os, "urandom", drawn.randbytes),
            (secrets, "randbits", drawn.getrandbits),
            (model, "randbits", drawn.getrandbits),
            (watchdog.Watchdog, "start", lambda _: None),
            (watchdog.Watchdog, "stop", lambda _: None),
            (execution, "threading", SimpleNamespace(Thread=_Inline, get_ident=threading.get_ident)),
        ):
            patches.enter_context(mock.patch.object(owner, name, value))
        try:
            yield
        finally:
            random.setstate(state)
