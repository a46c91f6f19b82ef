"""Calling the function of a schedule: async, or in a thread, with a time limit."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any, cast

from queuert.features.schedules.declared import Declaration
from queuert.features.schedules.times import Tick


async def call(declaration: Declaration, tick: Tick) -> Any:
    """What the function returns for a tick. Raises its error, or `TimeoutError`.

    An error that would end the worker is raised as a `RuntimeError`: `SystemExit`, for example, or
    the `CancelledError` of a task that the function has awaited.
    """
    function = cast("Callable[[Tick], Any]", declaration.function)
    limit = asyncio.timeout(declaration.timeout)
    try:
        async with limit:
            if inspect.iscoroutinefunction(inspect.unwrap(function)):
                return await function(tick)
            made = await _in_thread(function, tick)
            return await made if inspect.isawaitable(made) else made
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise TimeoutError(f"it took longer than {declaration.timeout:g} s") from error
    except (Exception, GeneratorExit):
        raise
    except BaseException as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise  # the worker stops
        raise RuntimeError(f"it raised {type(error).__qualname__}: {error}") from error


async def _in_thread(function: Callable[[Tick], Any], tick: Tick) -> Any:
    """A thread of its own: one that never ends must not keep others, or the process, waiting."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = function(tick)
        except BaseException as error:
            failure = RuntimeError("it raised StopIteration") if isinstance(error, StopIteration) else error
        try:
            loop.call_soon_threadsafe(settle, result, failure)
        except RuntimeError:
            return  # the loop is closed, and the worker with it

    threading.Thread(target=run, name=f"queuert-schedule {tick.schedule}", daemon=True).start()
    return await done
