"""The signal that tells a handler to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Literal

from queuert.base.contexts import context
from queuert.records.model import JobRow

AbortReason = Literal[
    "taken_by_another_worker",
    "not_found",
    "already_completed",
    "cancelled",
    "lease_lost",
    "timeout",
    "shutdown",
    "paused",
]

# One lock for all signals. Most jobs never take it: only waiting for a signal and setting one do.
_lock = threading.Lock()


class AbortSignal:
    """Tells a handler that its attempt should stop, and why. It can be used from any thread.

    The reasons, which make up the type `AbortReason`, are:

    - "taken_by_another_worker": the lease ended and the job was taken back.
    - "not_found": the job was deleted.
    - "already_completed": the job ended without this attempt, for example by `take_over`.
    - "cancelled": the chain was cancelled.
    - "lease_lost": the lease ended before it could be renewed. The job may be taken back.
    - "timeout": the attempt took longer than the handler's `timeout`.
    - "shutdown": the worker stops, and its `shutdown_timeout` has passed.
    - "paused": the job was paused with `cancel_running`.
    """

    __slots__ = ("_reason", "_waiting")

    def __init__(self) -> None:
        self._reason: AbortReason | None = None
        self._waiting: list[Callable[[], None]] | None = None

    @property
    def reason(self) -> AbortReason | None:
        """Why the attempt should stop. None: it should go on."""
        return self._reason

    @property
    def aborted(self) -> bool:
        """Whether the attempt should stop."""
        return self._reason is not None

    async def wait(self) -> AbortReason:
        """Wait until the attempt should stop, and return the reason. For `async def` handlers."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(event.set)

        with self._watching(wake):
            while self._reason is None:
                await event.wait()
            return self._reason

    def wait_in_thread(self, timeout: float | None = None) -> AbortReason | None:
        """Block until the attempt should stop, and return the reason. For plain `def` handlers.

        Args:
            timeout: The longest time to wait, in seconds (default: no limit). After it, the result
                is None if the attempt should go on.
        """
        event = threading.Event()
        with self._watching(event.set):
            if self._reason is None:
                event.wait(timeout)
            return self._reason

    @context
    def _watching(self, wake: Callable[[], None]) -> Iterator[None]:
        """Keep a wake-up function registered while the block runs."""
        with _lock:
            self._waiting = [*(self._waiting or ()), wake]
        try:
            yield
        finally:
            with _lock:
                self._waiting.remove(wake)


class Abort(AbortSignal):
    """The signal as the worker sees it."""

    __slots__ = ()

    def abort(self, reason: AbortReason) -> None:
        """Tell the handler to stop. The first reason stays."""
        with _lock:
            if self._reason is not None:
                return
            self._reason = reason
            waiting = list(self._waiting or ())
        for wake in waiting:
            wake()


def lost_reason(row: JobRow | None, token: int) -> AbortReason | None:
    """Why the claim with this token has ended, from the job as it is now. None: it has not."""
    if row is None:
        return "not_found"
    if row.status == "running" and row.token == token:
        return None
    if row.status == "cancelled":
        return "cancelled"
    if row.status in ("completed", "failed", "expired"):
        return "already_completed"
    return "taken_by_another_worker"
