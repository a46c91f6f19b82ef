"""Publishing with limited patience: a broker that hangs holds up nobody for long.

What is published comes after the commit, but whoever committed waits for it. So each call has its time. When that is
up, the channel is left alone for a while: workers and waiters poll, and the next commits wait for nothing.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any

from queuert.errors import NotifyUnavailable
from queuert.operations.notifications import Publisher
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter

PATIENCE = 2.0
"""Seconds that a call may take."""
SILENCE = 10.0
"""Seconds without another try, after a call that took longer."""

Publish = Callable[[Any], Awaitable[None] | None]


class _Bounded:
    """A `Publisher` that passes every call on through `_call`."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._silent_until = 0.0

    def provide_wake_hints(self, counts: Mapping[str, int]) -> Awaitable[None] | None:
        return self._call(self._publisher.provide_wake_hints, counts)

    def job_scheduled(self, types: Sequence[str]) -> Awaitable[None] | None:
        return self._call(self._publisher.job_scheduled, types)

    def chain_completed(self, chain_ids: Sequence[str]) -> Awaitable[None] | None:
        return self._call(self._publisher.chain_completed, chain_ids)

    def ownership_lost(self, job_ids: Sequence[str]) -> Awaitable[None] | None:
        return self._call(self._publisher.ownership_lost, job_ids)

    def stop(self) -> None:
        """Nothing more will be published."""

    def _call(self, publish: Publish, values: Any) -> Awaitable[None] | None:
        raise NotImplementedError

    def _check(self) -> None:
        if monotonic() < self._silent_until:
            raise NotifyUnavailable("not published: the channel did not answer in time a moment ago")

    def _too_late(self) -> NotifyUnavailable:
        self._silent_until = monotonic() + SILENCE
        return NotifyUnavailable(
            f"publishing took longer than {PATIENCE:g} s and was given up; the next try is in {SILENCE:g} s"
        )


class BoundedPublisher(_Bounded):
    """For an async client."""

    def __init__(self, notify: NotifyAdapter) -> None:
        super().__init__(notify)

    async def _call(self, publish: Publish, values: Any) -> None:
        self._check()
        pending = publish(values)
        assert pending is not None
        try:
            async with asyncio.timeout(PATIENCE):
                await pending
        except TimeoutError as error:
            raise self._too_late() from error


class SyncBoundedPublisher(_Bounded):
    """For a sync client. A thread publishes, as nothing else can be given up half-way; it ends with the client.

    An adapter that says `immediate` is trusted not to wait for anybody.
    """

    def __init__(self, notify: SyncNotifyAdapter) -> None:
        super().__init__(notify)
        self._immediate: bool = getattr(notify, "immediate", False)
        self._mutex = threading.Lock()
        self._thread: _PublisherThread | None = None

    def stop(self) -> None:
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()

    def _call(self, publish: Publish, values: Any) -> None:
        if self._immediate:
            publish(values)
            return
        self._check()
        done = self._working_thread().submit(lambda: publish(values))
        try:
            done.result(PATIENCE)
        except TimeoutError as error:
            done.cancel()
            self._leave_thread()
            raise self._too_late() from error

    def _leave_thread(self) -> None:
        """It may be stuck for good. The next try gets another one; this one ends when the channel lets go of it."""
        with self._mutex:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.end_soon()

    def _working_thread(self) -> _PublisherThread:
        with self._mutex:
            # A thread does not survive a fork.
            if self._thread is None or not self._thread.is_alive():
                self._thread = _PublisherThread()
                self._thread.start()
            return self._thread


class _PublisherThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="queuert-publisher", daemon=True)
        self._calls: queue.SimpleQueue[tuple[Callable[[], object], Future[None]] | None] = queue.SimpleQueue()

    def submit(self, call: Callable[[], object]) -> Future[None]:
        done: Future[None] = Future()
        self._calls.put((call, done))
        return done

    def end_soon(self) -> None:
        self._calls.put(None)

    def stop(self) -> None:
        """It may be stuck; then it ends when the channel lets go of it."""
        self.end_soon()
        self.join(PATIENCE)

    def run(self) -> None:
        while (item := self._calls.get()) is not None:
            call, done = item
            if not done.set_running_or_notify_cancel():
                continue  # nobody waits for it any more
            try:
                call()
            except BaseException as error:
                done.set_exception(error)
            else:
                done.set_result(None)
