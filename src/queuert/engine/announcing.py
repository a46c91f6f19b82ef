"""Sends notifications in the background, after the commit of a caller.

A commit hands over its notifications and returns. They go out at once, in the background. While one
batch is on its way, the notifications of other commits are collected, so that a type, chain or job
is announced once for many commits. If more wait than `MOST`, commits wait until there is room.

An async client does this in a task. If its event loop ends before the client is closed, what was
not sent is lost, and counted. A sync client does it on the event loop thread of the process. At the
end of the process it waits for that, but not for long: many sync clients are never closed.

If a notification is lost, no job is lost: workers and waiters poll.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context
from time import monotonic
from typing import Literal, Protocol
from weakref import WeakSet

from queuert.base.failure_log import FailureLog
from queuert.engine.notifications import Publisher, publications
from queuert.engine.transaction import NOTHING_LOST, Count
from queuert.errors import NotifyUnavailable
from queuert.ports.notify import Topic

Announce = Literal["background", "wait"]

MOST = 10_000
"""The most types, chains and jobs that wait to be announced."""
EXIT_PATIENCE = 2.0
"""Seconds that the end of the process waits."""
ROOM_PATIENCE = 20.0
"""Seconds that a thread waits for room. This is a last resort: sending has shorter limits."""


class Announcer(ABC):
    def __init__(self, publisher: Publisher, failures: Count, log: FailureLog) -> None:
        self._publisher = publisher
        self._failures = failures
        self._log = log
        self._waiting: dict[Topic, list[str]] = {}
        self._size = 0
        self._commits = self._sending = 0
        """How many commits the waiting ones, and those on their way, belong to."""
        self._busy = False
        self._mutex = threading.Lock()

    def announce(self, values: Mapping[Topic, Sequence[str]]) -> Awaitable[None] | None:
        """Hand over what a commit announces. The result is to be awaited, if there is one."""
        with self._mutex:
            for topic, those in values.items():
                self._waiting.setdefault(topic, []).extend(those)
                self._size += len(those)
            self._commits += 1
            begins, self._busy = not self._busy, True
            is_full = self._size > MOST
        if begins:
            try:
                self._begin()
            except BaseException:
                self._drop()
                raise
        return self._room() if is_full else None

    @property
    def lost(self) -> int:
        """How many commits were left behind by an event loop that has ended."""
        return 0

    async def _work(self) -> None:
        try:
            while values := self._next():
                try:
                    for step in publications(self._publisher, values):
                        await step()  # type: ignore[misc]  # an async channel
                except Exception as error:
                    self._failures.add(self._sending)
                    self._log.failed("Notifications", error, NOTHING_LOST, "Notifications")
                else:
                    self._log.worked("Notifications")
        except BaseException:  # the event loop ends
            self._failures.add(self._drop())
            raise

    def _next(self) -> dict[Topic, list[str]]:
        with self._mutex:
            values, self._waiting = self._waiting, {}
            self._sending, self._commits, self._size = self._commits, 0, 0
            self._busy = bool(values)
            self._went_on()
        return values

    def _drop(self) -> int:
        with self._mutex:
            number = self._commits + self._sending
            self._sending = self._commits = self._size = 0
            self._waiting = {}
            self._busy = False
            self._went_on()
        return number

    @abstractmethod
    def _begin(self) -> None:
        """Let `_work` run."""

    @abstractmethod
    def _room(self) -> Awaitable[None] | None:
        """Wait until there is room, or return what is to be awaited for that."""

    @abstractmethod
    def _went_on(self) -> None:
        """A batch was taken, or all is done. Called with the mutex."""


class AsyncAnnouncer(Announcer):
    """In a task of the client's event loop."""

    _loop: asyncio.AbstractEventLoop | None = None
    _task: asyncio.Task[None] | None = None
    _gone_on: asyncio.Event | None = None

    @property
    def lost(self) -> int:
        return self._commits + self._sending if self._loop is not None and self._loop.is_closed() else 0

    async def close(self) -> None:
        """Wait until everything is sent, or has failed."""
        while self._busy and self._task is not None:
            await asyncio.wait([self._task])

    def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Without the context of the caller that happens to be here.
        self._task = self._loop.create_task(self._work(), name="queuert-announcer", context=Context())
        self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A task that is cancelled before its first step never runs `_work`."""
        if self._busy and task is self._task:
            self._failures.add(self._drop())

    async def _room(self) -> None:
        while self._size > MOST:
            if self._gone_on is None:
                self._gone_on = asyncio.Event()
            await self._gone_on.wait()

    def _went_on(self) -> None:
        if self._gone_on is not None:
            self._gone_on.set()
            self._gone_on = None


class Background(Protocol):
    """A sync client's channel, as far as it is used here."""

    def begin(self, work: Callable[[], Awaitable[None]]) -> Future[None]: ...


class SyncAnnouncer(Announcer):
    """On the event loop thread of the process."""

    def __init__(self, channel: Background, publisher: Publisher, failures: Count, log: FailureLog) -> None:
        super().__init__(publisher, failures, log)
        self._channel = channel
        self._gone_on = threading.Condition(self._mutex)

    def wait(self, seconds: float) -> bool:
        """Wait until everything is sent, or has failed. False: it took longer."""
        with self._mutex:
            return self._gone_on.wait_for(lambda: not self._busy, max(0.0, seconds))

    def _begin(self) -> None:
        _in_use.add(self)
        self._channel.begin(self._work)

    def _room(self) -> None:
        with self._mutex:
            if not self._gone_on.wait_for(lambda: self._size <= MOST, ROOM_PATIENCE):
                raise NotifyUnavailable(f"there was no room for more notifications for {ROOM_PATIENCE:g} s")

    def _went_on(self) -> None:
        self._gone_on.notify_all()


_in_use: WeakSet[SyncAnnouncer] = WeakSet()


def _at_exit() -> None:
    deadline = monotonic() + EXIT_PATIENCE
    for announcer in list(_in_use):
        announcer.wait(deadline - monotonic())


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    # The parent process sends what it has not sent yet.
    os.register_at_fork(after_in_child=_in_use.clear)
