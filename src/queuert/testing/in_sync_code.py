"""Handlers that run in the thread of a test, inside middleware, which is async."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from queue import SimpleQueue
from typing import Any

from queuert.base.contexts import context
from queuert.worker.handlers.attempt import BaseAttempt
from queuert.worker.handlers.claim import Claim


def call_with_middleware(
    claim: Claim,
    attempt: BaseAttempt[Any, Any],
    call: Callable[[], Any],
    running: asyncio.AbstractEventLoop | None = None,
) -> Any:
    """Call the handler in this thread. Its middleware runs on an event loop in another thread: the
    one that is given, or a new one.
    """
    middleware = claim.plan.middleware
    if not middleware.all:
        return call()
    with _loop_in_thread() if running is None else nullcontext(running) as loop:
        calls: SimpleQueue[asyncio.Future[Any] | None] = SimpleQueue()

        async def innermost() -> Any:
            result: asyncio.Future[Any] = loop.create_future()
            calls.put(result)
            return await result

        async def around() -> Any:
            claim.task = asyncio.current_task()
            try:
                return await middleware.call(attempt, innermost)
            finally:
                calls.put(None)

        outcome = asyncio.run_coroutine_threadsafe(around(), loop)
        while (result := calls.get()) is not None:
            try:
                value = call()
            except BaseException as error:
                loop.call_soon_threadsafe(result.set_exception, error)
            else:
                loop.call_soon_threadsafe(result.set_result, value)
        return outcome.result()


@context
def _loop_in_thread() -> Iterator[asyncio.AbstractEventLoop]:
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def until_ended() -> None:
        ended = asyncio.Event()
        begun.set_result((asyncio.get_running_loop(), ended))
        await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(until_ended()), name="queuert-middleware", daemon=True)
    thread.start()
    loop, ended = begun.result()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
