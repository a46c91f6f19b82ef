"""`crash_everywhere`: the same scenario again and again, killed at another point each time."""

from __future__ import annotations

import asyncio
import inspect
import os
import pickle
import shutil
import signal
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial, wraps
from pathlib import Path
from typing import Any, cast, overload

from queuert.client.client import Client
from queuert.client.sync_client import SyncClient
from queuert.errors import InvalidArgument
from queuert.jobs import scope
from queuert.testing.crash_points import CrashPoints
from queuert.testing.running import Running, SyncRunning, run_one_by_one
from queuert.worker.handlers.registry import Handlers

MOST_POINTS = 2_000
"""More points than this take too long."""


class Crash:
    """One run of a scenario. `crash_everywhere` makes it."""

    directory: Path
    """An empty directory for this run: for a database, and for what stands for other systems."""
    restarted: bool
    """With `sigkill=True`: whether the process was killed before. Then start nothing again."""

    def __init__(self, directory: Path, points: CrashPoints, *, restarted: bool = False) -> None:
        self.directory = directory
        self.restarted = restarted
        self._points = points

    @overload
    def running(
        self, client: Client[Any], handlers: Handlers[Any] | Sequence[Handlers[Any]]
    ) -> AbstractAsyncContextManager[Running, None]: ...
    @overload
    def running(
        self, client: SyncClient[Any], handlers: Handlers[Any] | Sequence[Handlers[Any]]
    ) -> AbstractContextManager[SyncRunning, None]: ...
    def running(self, client: Any, handlers: Any) -> Any:
        """Like `testing.running`, but jobs run one after the other, and one of them is killed.

        Args:
            client: The client that your code uses, sync or async.
            handlers: The handlers, or a list of registries.
        """
        return run_one_by_one(client, handlers, self._points)


@overload
def crash_everywhere(scenario: Callable[..., Any], /) -> Callable[..., None]: ...
@overload
def crash_everywhere(*, sigkill: bool = False) -> Callable[[Callable[..., Any]], Callable[..., None]]: ...
def crash_everywhere(scenario: Callable[..., Any] | None = None, *, sigkill: bool = False) -> Any:
    """Turn a scenario into a test that kills its attempts at every point.

        @testing.crash_everywhere
        async def test_charging(crash: testing.Crash) -> object:
            bank = FakeBank()
            async with queuert.connect("memory://", jobs=[ChargeCard]) as client:
                async with crash.running(client, handlers) as run:
                    await run.output(await client.submit(ChargeCard(order_id=7)))
            return bank.charges

    The scenario sets up everything from the start, runs its chains with `crash.running`, and
    returns the effects: what is in your tables, which calls other systems have got. It runs once
    undisturbed. Then it runs again for each point, and is killed there: before each line of a
    handler, between the calls of other systems that one line makes, before and after each commit.
    Another worker takes over. If the effects are not the same in the end, or if the scenario fails,
    the test fails and names these points.

    Its parameter `crash` is a `Crash`. Other parameters are those of the test, like pytest's
    fixtures. Mark fakes of other systems with `testing.outside`.

    Args:
        scenario: The scenario, `async def` or a plain `def`.
        sigkill: Kill a whole process by SIGKILL, instead of one attempt (default: False). The
            scenario runs in a forked process, and then again in another one, with
            `crash.restarted`. So its effects must be in files, in `crash.directory` for example, or
            in a database. Not on Windows.
    """
    return partial(_test, sigkill=sigkill) if scenario is None else _test(scenario, sigkill=sigkill)


def _test(scenario: Callable[..., Any], *, sigkill: bool) -> Callable[..., None]:
    signature = scope.signature(scenario)
    if "crash" not in signature.parameters:
        raise InvalidArgument(f"{scenario.__qualname__} needs a parameter named crash: it gets a testing.Crash")

    @wraps(scenario)
    def test(*args: Any, **kwargs: Any) -> None:
        def run(crash: Crash) -> Any:
            made = scenario(*args, crash=crash, **kwargs)
            effects = asyncio.run(_awaited(made)) if inspect.isawaitable(made) else made
            if effects is None:
                raise InvalidArgument(f"{scenario.__qualname__} must return the effects that are to be compared")
            return effects

        _Everywhere(run, sigkill=sigkill).check(scenario.__qualname__)

    # pytest must not look for a fixture of this name.
    others = [parameter for name, parameter in signature.parameters.items() if name != "crash"]
    test.__signature__ = signature.replace(parameters=others, return_annotation=None)  # type: ignore[attr-defined]
    return test


async def _awaited(made: Any) -> Any:
    return await made


class _Everywhere:
    def __init__(self, run: Callable[[Crash], Any], *, sigkill: bool) -> None:
        self._run = run
        self._sigkill = sigkill

    def check(self, name: str) -> None:
        undisturbed = CrashPoints()
        expected = self._in_directory(lambda directory: self._run(Crash(directory, undisturbed)))
        reached = undisturbed.reached
        if not reached:
            raise AssertionError(f"{name} ran no handler: run its chains with crash.running(…)")
        if len(reached) > MOST_POINTS:
            raise AssertionError(f"{name} has {len(reached)} points to crash at: use a smaller scenario")
        problems = [
            problem
            for number, point in enumerate(reached, 1)
            if (problem := self._problem(number, point, expected)) is not None
        ]
        if problems:
            raise AssertionError(
                f"{name}: {len(problems)} of {len(reached)} crashes changed the effects\n\n" + "\n\n".join(problems)
            )

    def _problem(self, number: int, point: str, expected: Any) -> str | None:
        """What is wrong after a crash at this point."""
        again = self._with_sigkill if self._sigkill else self._in_process
        try:
            effects = self._in_directory(lambda directory: again(number, directory))
        except Exception as error:
            shown = "".join(traceback.format_exception_only(error)).strip()
            return f"  killed {point}\n    then the scenario failed: {shown}"
        if effects == expected:
            return None
        lines = "\n".join(f"    {line}" for line in difference(expected, effects))
        return f"  killed {point}\n{lines}"

    def _in_process(self, number: int, directory: Path) -> Any:
        return self._run(Crash(directory, CrashPoints(number)))

    def _with_sigkill(self, number: int, directory: Path) -> Any:
        first = _in_child(lambda: self._run(Crash(directory, CrashPoints(number, by_signal=True))))
        if first != -signal.SIGKILL:
            raise AssertionError(f"the process was to be killed, but it ended with {first}")
        answer = directory / ".effects"

        def recover() -> None:
            answer.write_bytes(pickle.dumps(self._run(Crash(directory, CrashPoints(), restarted=True))))

        if _in_child(recover) != 0:
            raise AssertionError("the process that recovers failed: its error is above")
        return pickle.loads(answer.read_bytes())

    def _in_directory(self, run: Callable[[Path], Any]) -> Any:
        directory = Path(tempfile.mkdtemp(prefix="queuert-crash-"))
        try:
            return run(directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def _in_child(work: Callable[[], object]) -> int:
    """Run this in a forked process. Returns its exit code, or minus the signal that killed it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which the child does not need
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def difference(expected: Any, got: Any, place: str = "") -> list[str]:
    """What was doubled, what was lost, or both values if that cannot be determined."""
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        before: Mapping[Any, Any] = expected  # pyright: ignore[reportUnknownVariableType]
        after: Mapping[Any, Any] = got  # pyright: ignore[reportUnknownVariableType]
        return [
            line
            for key in [*before, *(key for key in after if key not in before)]
            for line in _one(before.get(key), after.get(key), f"{place}{key}: ")
        ]
    return _one(expected, got, place)


def _one(expected: Any, got: Any, place: str) -> list[str]:
    if expected == got:
        return []
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        before, after = _counted(cast("Iterable[Any]", expected)), _counted(cast("Iterable[Any]", got))
        more = [f"{place}{'doubled' if item in before else 'too much'}: {item}" for item in (after - before).elements()]
        less = [f"{place}lost: {item}" for item in (before - after).elements()]
        if more or less:
            return more + less
    return [f"{place}expected {expected!r}", f"{place}got {got!r}"]


def _counted(items: Iterable[Any]) -> Counter[str]:
    return Counter(repr(item) for item in items)
