"""The turn-taking of asyncio tasks on the one connection that writes: first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from queuert.errors import StorageBusy, TransactionNested


class WriteLock:
    """Hands the connection from task to task. Belongs to no event loop while nobody waits."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._holder: asyncio.Task[Any] | None = None
        self._held = False
        self._waiters: deque[tuple[asyncio.Future[None], asyncio.Task[Any] | None]] = deque()

    @property
    def held(self) -> bool:
        return self._held

    async def acquire(self) -> None:
        task = asyncio.current_task()
        if not self._held:
            self._held, self._holder = True, task
            return
        if self._holder is task and task is not None:
            raise TransactionNested(
                "this task has a transaction open and would wait for itself: use the transaction that is open"
            )
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        entry = (turn, task)
        self._waiters.append(entry)
        alarm = loop.call_later(self._timeout, self._give_up, turn)
        try:
            await turn
        except BaseException:
            if entry in self._waiters:
                self._waiters.remove(entry)
            elif not turn.cancelled() and turn.exception() is None:
                self.release()  # the lock was handed over in the moment of the cancellation
            raise
        finally:
            alarm.cancel()

    def release(self) -> None:
        """Straight to the one who waits longest, so that nobody who comes later can overtake."""
        while self._waiters:
            turn, task = self._waiters.popleft()
            if not turn.done():
                self._holder = task
                turn.set_result(None)
                return
        self._held, self._holder = False, None

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        if not turn.done():
            turn.set_exception(
                StorageBusy(f"another transaction of this process has kept the write lock for {self._timeout:g} s")
            )
