"""Waiting for chains to end.

Any number of waiters share one listener. A waiter registers before it reads the chain, so an end
between the two is not missed. It reads again whenever it is woken: by a notification, or by
polling, because notifications may get lost.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from queuert.base.arguments import Duration, seconds
from queuert.errors import ChainCancelled, ChainExpired, ChainFailed, ChainNotFound, WaitTimeout
from queuert.jobs.chain import Chain
from queuert.ports.notify import MISSED, Dispose, NotifyAdapter
from queuert.ports.sync_notify import SyncDispose, SyncNotify

logger = logging.getLogger("queuert.client")

_CHAINS_PER_POLL = 1000


def found(chain_id: str, chain: Chain[Any] | None) -> Chain[Any]:
    if chain is None:
        raise ChainNotFound(
            chain_id,
            f"chain {chain_id} does not exist, or was deleted, or the transaction that starts it is not committed yet: "
            "call wait() after the block of that transaction",
        )
    return chain


def outcome(chain: Chain[Any]) -> tuple[bool, Any]:
    """(True, output) for a completed chain, (False, None) for an open one; raises for any other
    end.
    """
    chain_id = chain.id
    if chain.status == "completed":
        return True, chain.output
    if chain.status == "failed":
        raise ChainFailed(chain_id, chain.last_error)
    if chain.status == "cancelled":
        raise ChainCancelled(chain_id)
    if chain.status == "expired":
        raise ChainExpired(chain_id)
    return False, None


class Deadline:
    """How long a wait may still take."""

    def __init__(self, chain_id: str, timeout: Duration | None) -> None:
        self._chain_id = chain_id
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._end = None if self._timeout is None else time.monotonic() + self._timeout

    def left(self) -> float | None:
        """Seconds left, 0 when time is up. None: no limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def passed(self, chain: Chain[Any], failed_blockers: Mapping[str, str]) -> WaitTimeout:
        """The error to raise, with what was read of the chain last."""
        return WaitTimeout(
            self._chain_id,
            self._timeout or 0.0,
            status=chain.status,
            last_error=chain.last_error,
            failed_blockers=failed_blockers,
        )


class Waiters:
    """Wake-up functions by chain id. Thread-safe: a notification may come from any thread."""

    def __init__(self) -> None:
        self._by_chain: dict[str, set[Callable[[], None]]] = {}
        self._lock = threading.Lock()

    def add(self, chain_id: str, wake: Callable[[], None]) -> None:
        with self._lock:
            self._by_chain.setdefault(chain_id, set()).add(wake)

    def remove(self, chain_id: str, wake: Callable[[], None]) -> None:
        with self._lock:
            waiting = self._by_chain.get(chain_id)
            if waiting is not None:
                waiting.discard(wake)
                if not waiting:
                    del self._by_chain[chain_id]

    def wake(self, chain_id: str) -> None:
        with self._lock:
            waiting = list(self._by_chain.get(chain_id, ()))
        for wake in waiting:
            wake()

    def wake_all(self) -> None:
        with self._lock:
            waiting = [wake for group in self._by_chain.values() for wake in group]
        for wake in waiting:
            wake()

    def chain_ids(self) -> list[str]:
        with self._lock:
            return list(self._by_chain)


class ChainWaiting:
    """`wait` of the async client. One task polls for all waiters, as long as there are any."""

    def __init__(
        self,
        notify: NotifyAdapter,
        read: Callable[[str, str | None], Awaitable[Chain[Any] | None]],
        read_failed_blockers: Callable[[str], Awaitable[Mapping[str, str]]],
        read_ended: Callable[[list[str]], Awaitable[list[str]]],
        poll_interval: float,
    ) -> None:
        self._notify = notify
        self._read = read
        self._read_failed_blockers = read_failed_blockers
        self._read_ended = read_ended
        self._poll_interval = poll_interval
        self._waiters = Waiters()
        self._subscribing: asyncio.Task[None] | None = None
        self._dispose: Dispose | None = None
        self._poller: asyncio.Task[None] | None = None
        self._poll_now = asyncio.Event()

    async def wait(self, chain_id: str, chain_type: str | None, timeout: Duration | None) -> Any:
        deadline = Deadline(chain_id, timeout)
        loop = self._loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(woken.set)

        self._waiters.add(chain_id, wake)
        try:
            await self._listen()
            while True:
                woken.clear()
                chain = found(chain_id, await self._read(chain_id, chain_type))
                done, output = outcome(chain)
                if done:
                    return output
                self._keep_polling()
                left = deadline.left()
                if left == 0:
                    raise deadline.passed(chain, await self._failed_blockers(chain))
                try:
                    async with asyncio.timeout(left):
                        await woken.wait()
                except TimeoutError:
                    # Read once more, then let the deadline decide: the notification may have been
                    # lost.
                    continue
        finally:
            self._waiters.remove(chain_id, wake)

    async def _failed_blockers(self, chain: Chain[Any]) -> Mapping[str, str]:
        if chain.status != "blocked" or chain.current_job_id is None:
            return {}
        try:
            return await self._read_failed_blockers(chain.current_job_id)
        except Exception:
            return {}  # they are only to explain the timeout

    async def _listen(self) -> None:
        """Wait no longer than one poll interval for the channel. The next waiter tries again."""
        if self._dispose is None:
            if self._subscribing is None:
                self._subscribing = asyncio.create_task(self._subscribe(), name="queuert-wait-subscribe")
            await asyncio.wait({self._subscribing}, timeout=self._poll_interval)

    async def _subscribe(self) -> None:
        try:
            self._dispose = await self._notify.listen("chain_ended", self._ended)
        except Exception:
            logger.warning("cannot listen for ended chains, polling instead", exc_info=True)
        finally:
            self._subscribing = None

    def _ended(self, chain_id: str) -> None:
        """May be called from any thread."""
        if chain_id == MISSED:
            self._loop.call_soon_threadsafe(self._poll_now.set)
        else:
            self._waiters.wake(chain_id)

    def _keep_polling(self) -> None:
        if self._poller is None or self._poller.done():
            self._poller = asyncio.create_task(self._poll(), name="queuert-wait-poller")

    async def _poll(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_interval):
                    await self._poll_now.wait()
            self._poll_now.clear()
            chain_ids = self._waiters.chain_ids()
            if not chain_ids:
                return
            for start in range(0, len(chain_ids), _CHAINS_PER_POLL):
                part = chain_ids[start : start + _CHAINS_PER_POLL]
                try:
                    ended = await self._read_ended(part)
                except Exception:
                    # Each waiter reads its chain itself, and its caller gets the error.
                    ended = part
                for chain_id in ended:
                    self._waiters.wake(chain_id)

    async def close(self) -> None:
        """Stop listening. Callers that still wait read once more and find the client closed."""
        if self._subscribing is not None:
            self._subscribing.cancel()
            await asyncio.wait({self._subscribing})
        dispose, self._dispose = self._dispose, None
        if dispose is not None:
            try:
                await dispose()
            except Exception:
                logger.warning("ending a subscription failed", exc_info=True)
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)
        self._waiters.wake_all()


class SyncChainWaiting:
    """`wait` of the sync client."""

    def __init__(
        self,
        notify: SyncNotify,
        read: Callable[[str, str | None], Chain[Any] | None],
        read_failed_blockers: Callable[[str], Mapping[str, str]],
        poll_interval: float,
    ) -> None:
        self._notify = notify
        self._read = read
        self._read_failed_blockers = read_failed_blockers
        self._poll_interval = poll_interval
        self._waiters = Waiters()
        self._listening = threading.Lock()
        self._dispose: SyncDispose | None = None

    def wait(self, chain_id: str, chain_type: str | None, timeout: Duration | None) -> Any:
        deadline = Deadline(chain_id, timeout)
        woken = threading.Event()
        # A bound method is a new object at each access: removal needs the same one.
        wake = woken.set
        self._waiters.add(chain_id, wake)
        try:
            self._listen()
            while True:
                woken.clear()
                chain = found(chain_id, self._read(chain_id, chain_type))
                done, output = outcome(chain)
                if done:
                    return output
                left = deadline.left()
                if left == 0:
                    raise deadline.passed(chain, self._failed_blockers(chain))
                woken.wait(self._poll_interval if left is None else min(left, self._poll_interval))
        finally:
            self._waiters.remove(chain_id, wake)

    def _failed_blockers(self, chain: Chain[Any]) -> Mapping[str, str]:
        if chain.status != "blocked" or chain.current_job_id is None:
            return {}
        try:
            return self._read_failed_blockers(chain.current_job_id)
        except Exception:
            return {}

    def _listen(self) -> None:
        with self._listening:
            if self._dispose is None:
                try:
                    self._dispose = self._notify.listen("chain_ended", self._ended)
                except Exception:
                    logger.warning("cannot listen for ended chains, polling instead", exc_info=True)

    def _ended(self, chain_id: str) -> None:
        if chain_id == MISSED:
            self._waiters.wake_all()
        else:
            self._waiters.wake(chain_id)

    def close(self) -> None:
        dispose, self._dispose = self._dispose, None
        if dispose is not None:
            try:
                dispose()
            except Exception:
                logger.warning("ending a subscription failed", exc_info=True)
        self._waiters.wake_all()
