"""The points at which an attempt can be killed, and killing it at one of them.

Inside a handler, each line of user code is a point: it is found by tracing. So is each call of
another system, if a line makes several. A process that is killed executes nothing more. So after
the kill, every further line of user code in the attempt is refused, in `except` and `finally`
blocks too.
"""

from __future__ import annotations

import inspect
import linecache
import os
import signal
import sys
import sysconfig
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from queuert.worker.handlers.registry import HandlerPlan

F = TypeVar("F", bound=Callable[..., Any])

_outside: ContextVar[bool] = ContextVar("queuert_testing_outside", default=False)
_running: ContextVar[CrashPoints | None] = ContextVar("queuert_testing_points", default=None)
"""The points of the attempt that runs. Tasks that a handler starts inherit it."""

_LIBRARIES = tuple(
    f"{Path(path).resolve()}{os.sep}"
    for path in (
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        str(Path(__file__).parents[1]),
    )
)


class Killed(BaseException):
    """The process is dead."""


def outside(function: F) -> F:
    """Mark a function that stands for another system, like a fake of a payment service.

    It does not crash with the attempt that calls it: crashes happen before and after the call.

        class FakeBank:
            @testing.outside
            async def charge(self, cents: int) -> None:
                self.charges.append(cents)

    Args:
        function: The function or method, plain or async.
    """
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            _reach_call(function)
            token = _outside.set(True)
            try:
                return await function(*args, **kwargs)
            finally:
                _outside.reset(token)

        return call_async  # type: ignore[return-value]

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        _reach_call(function)
        token = _outside.set(True)
        try:
            return function(*args, **kwargs)
        finally:
            _outside.reset(token)

    return call  # type: ignore[return-value]


def _reach_call(function: Callable[..., Any]) -> None:
    points = _running.get()
    if points is not None and not _outside.get():
        points.reach_call(function.__qualname__)


class Points:
    """The points of a run that nothing kills."""

    def reach(self, point: str) -> None:
        """The run has reached a point. Raises `Killed` if it ends there."""

    def revive(self) -> None:
        """Another worker goes on."""

    def watched(self, plan: HandlerPlan) -> Callable[[Any], Any]:
        """The function of a handler, with a point at each line of user code."""
        return plan.function


class CrashPoints(Points):
    """Counts the points of a run, and kills it at one of them.

    `kill_at` is the number of that point, counted from 1. None: it is only counted. `by_signal`:
    the process itself is killed, by SIGKILL.
    """

    def __init__(self, kill_at: int | None = None, *, by_signal: bool = False) -> None:
        self._kill_at = kill_at
        self._by_signal = by_signal
        self._dead = False
        self._has_called = False
        """Another system, since the last line began."""
        self.reached: list[str] = []

    def reach(self, point: str) -> None:
        if self._dead:
            raise Killed
        self.reached.append(point)
        if len(self.reached) == self._kill_at:
            if self._by_signal:
                os.kill(os.getpid(), signal.SIGKILL)
            self._dead = True
            raise Killed(point)

    def reach_call(self, name: str) -> None:
        """A call of another system. Before the first one of a line, the line is the point."""
        if self._has_called or self._dead:
            self.reach(f"before the call of {name}")
        self._has_called = True

    def revive(self) -> None:
        self._dead = False

    def watched(self, plan: HandlerPlan) -> Callable[[Any], Any]:
        function = plan.function
        if plan.is_async:

            async def run_async(attempt: Any) -> Any:
                others = _running.set(self)
                try:
                    return await _stepwise(function(attempt), self._on_call)
                finally:
                    _running.reset(others)

            return run_async

        def run(attempt: Any) -> Any:
            before, others = sys.gettrace(), _running.set(self)
            sys.settrace(self._on_call)
            try:
                return function(attempt)
            finally:
                sys.settrace(before)
                _running.reset(others)

        return run

    def _on_call(self, frame: types.FrameType, event: str, argument: Any) -> Any:  # noqa: ARG002
        return self._on_line if event == "call" and not _outside.get() and _is_users(frame.f_code.co_filename) else None

    def _on_line(self, frame: types.FrameType, event: str, argument: Any) -> Any:  # noqa: ARG002
        if event == "line":
            file, line = frame.f_code.co_filename, frame.f_lineno
            text = linecache.getline(file, line).strip()
            self._has_called = False
            self.reach(f"before {Path(file).name}:{line} in {frame.f_code.co_name}: {text}")
        return self._on_line


@types.coroutine
def _stepwise(call: Awaitable[Any], trace: Any) -> Generator[Any, Any, Any]:
    """Run a coroutine, traced only while it runs, and not while others do."""
    coroutine: Coroutine[Any, Any, Any] = _as_coroutine(call)
    step: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            awaited = step(value)
        except StopIteration as finished:
            return finished.value
        finally:
            sys.settrace(before)
        try:
            value = yield awaited
            step = coroutine.send
        except BaseException as error:
            step, value = coroutine.throw, error


def _as_coroutine(call: Awaitable[Any]) -> Coroutine[Any, Any, Any]:
    if inspect.iscoroutine(call):
        return call

    async def wait() -> Any:
        return await call

    return wait()


@lru_cache(maxsize=1024)
def _is_users(file: str) -> bool:
    return not file.startswith("<") and not str(Path(file).resolve()).startswith(_LIBRARIES)
