"""A plain `def` handler inside middleware: the thread and the event loop take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, wait
from typing import Any

from queuert.errors import QueuertError
from queuert.worker.attempts.outcome import Outcome, Raised, Returned

Confirm = Callable[[Any], Any]
"""Called in a handler's thread before its transaction commits, with its result; returns the result
that counts."""


class CallInThread:
    """A plain `def` handler inside middleware.

    Middleware may change the result before the handler's transaction commits. So the handler's
    thread waits for the middleware, with its transaction open. Middleware may call the handler
    again. Then the transaction of the call before is rolled back.
    """

    def __init__(self, run_body: Callable[[Confirm], Awaitable[Outcome]], loop: asyncio.AbstractEventLoop) -> None:
        self._run_body = run_body
        self._loop = loop
        self._body: asyncio.Future[Outcome] | None = None
        self._verdict: Future[Outcome] | None = None

    async def run(self) -> Any:
        """What middleware awaits: the handler's result or error."""
        await self.decide(Raised(CalledAgain()))
        asked: asyncio.Future[Any] = self._loop.create_future()
        self._verdict = verdict = Future[Outcome]()
        self._body = body = asyncio.ensure_future(self._run_body(lambda result: self._confirm(asked, verdict, result)))
        await asyncio.wait((body, asked), return_when=asyncio.FIRST_COMPLETED)
        if not body.done():
            return asked.result()
        outcome = body.result()
        if isinstance(outcome, Raised):
            raise outcome.error
        assert isinstance(outcome, Returned)
        return outcome.value

    async def decide(self, outcome: Returned | Raised) -> Outcome:
        """Tell the waiting thread the result that middleware decided on. Returns the outcome."""
        body, verdict, self._body, self._verdict = self._body, self._verdict, None, None
        if body is None or verdict is None or body.done():
            return outcome
        verdict.set_result(outcome)
        return await body

    def _confirm(self, asked: asyncio.Future[Any], verdict: Future[Outcome], result: Any) -> Any:
        """In the thread."""
        self._loop.call_soon_threadsafe(_resolve, asked, result)
        while not verdict.done():
            wait((verdict,), timeout=1.0)
            if self._loop.is_closed():
                raise CalledAgain("the worker's event loop was closed before the attempt was settled")
        outcome = verdict.result()
        if isinstance(outcome, Raised):
            raise outcome.error
        assert isinstance(outcome, Returned)
        return outcome.value


class CalledAgain(QueuertError):
    """Middleware has called the handler again: the call before has no effect."""


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)
