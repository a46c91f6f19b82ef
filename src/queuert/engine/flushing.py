"""What happens after a transaction: notifications, callbacks and events, once it is committed or
rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from queuert.base.blocking import run_blocking
from queuert.base.failure_log import FailureLog
from queuert.engine.announcing import Announce, Announcer, AsyncAnnouncer, SyncAnnouncer
from queuert.engine.engine import Engine
from queuert.engine.events.watched import watched_notify
from queuert.engine.ownership import Owned
from queuert.engine.transaction import Count, Hooks, logger
from queuert.ports.program import Program

T = TypeVar("T")

CLOSE_WAIT = 5.0
"""Seconds that `close` waits for what was submitted or is still to be announced."""


class Flushing(Owned):
    """The part of `Sessions` that does it."""

    _blocking = False

    _announcer: Announcer | None

    def __init__(self, engine: Engine, announce: Announce) -> None:
        super().__init__()
        self.engine = engine
        self.hook_failures = Count()
        self._flush_log = FailureLog(logger)
        self._flushes: set[asyncio.Task[None]] = set()
        # An immediate channel delivers within this call.
        waits = announce == "wait" or getattr(engine.notify, "immediate", False)
        self._announcer = None if waits else self._new_announcer()

    async def run(self, program: Program[T]) -> T:
        raise NotImplementedError

    def _new_announcer(self) -> Announcer:
        return AsyncAnnouncer(self.engine.notify, self.hook_failures, self._flush_log)

    @property
    def failures(self) -> int:
        """How many notifications and callbacks failed."""
        return self.hook_failures.number + (0 if self._announcer is None else self._announcer.lost)

    async def _finish_flushes(self) -> None:
        await self._close_announcer()
        if self._flushes:
            await asyncio.wait(self._flushes)

    async def _close_announcer(self) -> None:
        if isinstance(self._announcer, AsyncAnnouncer):
            await self._announcer.close()

    def new_hooks(self) -> Hooks:
        """For what waits for the end of a transaction."""
        return Hooks(blocking=self._blocking, announce=None if self._announcer is None else self._announcer.announce)

    async def flush(self, hooks: Hooks) -> None:
        """Do what waited for a commit.

        Never raises: nothing that happens here undoes the commit.
        """
        try:
            await hooks.flush(self._flush_log)
        finally:
            self._count(hooks)

    async def _roll_back(self, hooks: Hooks) -> None:
        hooks.roll_back()
        if hooks.has_undone:
            await self._flush_undone(hooks)

    async def _flush_undone(self, hooks: Hooks) -> None:
        """Call what waited for a rollback. Raises no error of a callback."""
        try:
            await hooks.flush_undone(self._flush_log)
        finally:
            self._count(hooks)

    def _discard(self, hooks: Hooks, error: BaseException) -> None:
        number = hooks.discard()
        if number:
            logger.warning(
                "a transaction may have committed or not (%s: %s), so %d callbacks of after_commit() and "
                "after_rollback() are not called",
                type(error).__qualname__,
                error,
                number,
            )

    def _count(self, hooks: Hooks) -> None:
        failures, hooks.failures = hooks.failures, 0
        if failures:
            self.hook_failures.add(failures)

    async def _flush_joined(self, hooks: Hooks) -> None:
        """The owner of a transaction believes that it was committed. That may be wrong: PostgreSQL
        answers the COMMIT of a broken transaction with a rollback. So observers are told only of
        what is in the database.
        """
        if self.engine.observers is not None:
            # If the database cannot be asked, the end without an error is believed.
            with suppress(Exception):
                await self.run(self.engine.observations(hooks).confirm())
        await self.flush(hooks)

    def flush_later(self, hooks: Hooks) -> None:
        """`flush` in the background, because the caller can no longer wait."""
        self._begin(self.flush(hooks))

    def _flush_enlisted(self, hooks: Hooks) -> Awaitable[None] | None:
        return self._begin(self._flush_joined(hooks))

    def _flush_enlisted_undone(self, hooks: Hooks) -> Awaitable[None] | None:
        return self._begin(self._flush_undone(hooks))

    def _begin(self, flush: Coroutine[Any, Any, None]) -> Awaitable[None]:
        """The code that ended the transaction does not wait for this; `close` does."""
        task = asyncio.create_task(flush)
        self._flushes.add(task)
        task.add_done_callback(self._flushes.discard)
        return task


class SyncFlushing(Flushing):
    """The same for a sync client. Nothing here suspends."""

    _blocking = True

    def _new_announcer(self) -> Announcer:
        channel: Any = self.engine.notify
        publisher: Any = channel.adapter
        if self.engine.observers is not None:
            publisher = watched_notify(publisher, self.engine.observers)
        return SyncAnnouncer(channel, publisher, self.hook_failures, self._flush_log)

    async def _close_announcer(self) -> None:
        if isinstance(self._announcer, SyncAnnouncer):
            self._announcer.wait(CLOSE_WAIT)

    def flush_later(self, hooks: Hooks) -> None:
        run_blocking(self.flush(hooks))

    def _flush_enlisted(self, hooks: Hooks) -> None:
        run_blocking(self._flush_joined(hooks))

    def _flush_enlisted_undone(self, hooks: Hooks) -> None:
        run_blocking(self._flush_undone(hooks))
