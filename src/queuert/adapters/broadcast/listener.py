"""One subscription for all callbacks of an adapter.

It begins with the first callback and ends with the last. In between, a separate task subscribes
again whenever the connection is lost, and keeps trying until it succeeds. A caller that begins to
listen meanwhile makes it try again at once, and gets the error if that fails. If it needs more
topics, the subscription is extended. If the provider cannot do that, it is replaced, and listeners
hear that they may have missed something.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from queuert.adapters.broadcast.messages import Subscriptions
from queuert.adapters.broadcast.pauses import CONNECT_TIMEOUT, PING_TIMEOUT, Pauses
from queuert.adapters.broadcast.provider import CompleteProvider
from queuert.adapters.finishing import finish
from queuert.errors import ClientClosed, NotifyUnavailable
from queuert.ports.notify import TOPICS, Topic

logger = logging.getLogger("queuert.notify")

CANCEL_AGAIN = 2.0
"""Seconds until a subscription that has not ended is cancelled again. Before Python 3.12,
`wait_for` in a driver may swallow a cancellation."""
CANCEL_TIMES = 5


class Listener:
    def __init__(
        self,
        provider: CompleteProvider,
        channels: Mapping[Topic, str],
        subscriptions: Subscriptions,
        heartbeat: float,
    ) -> None:
        self._provider = provider
        self._channels = channels
        self._subscriptions = subscriptions
        self._heartbeat = heartbeat
        self._topics: Sequence[Topic] = ()
        self._task: asyncio.Task[None] | None = None
        """Keeps the subscription alive, from the first callback to the last."""
        self._extending: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._attempt: _Attempt | None = None
        self._stale = False
        """The current attempt does not include all topics that are wanted now."""
        self._wanted = asyncio.Event()
        self._outcome = _future()
        """The result of the next or current attempt to subscribe. Done while we are subscribed."""

    async def active(self, topic: Topic) -> None:
        """Wait until the subscription includes this topic; raises the error that prevented it."""
        if topic not in self._topics:
            before = self._topics
            # A client that only waits for chains does not need a message for every job.
            self._topics = (topic,) if topic == "chain_ended" else TOPICS
            is_subscribed = self._outcome.done()
            if is_subscribed:
                self._outcome = _future()
            if is_subscribed and self._provider.can_extend and self._task is not None and self._attempt is not None:
                more = [self._channels[each] for each in self._topics if each not in before]
                extending = asyncio.create_task(self._extend(self._attempt, more), name="queuert-extend")
                self._extending.add(extending)
                extending.add_done_callback(self._extending.discard)
            else:
                self._begin_anew()
        if self._task is None:
            self._task = asyncio.create_task(self._live(), name="queuert-listener")
        self._wanted.set()
        await asyncio.shield(self._outcome)

    async def _extend(self, attempt: _Attempt, channels: Sequence[str]) -> None:
        """Add channels to a subscription that is active."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._provider.extend(channels)
        except Exception as error:
            logger.debug("could not listen for more on the connection for notifications: %r", error)
            if attempt is self._attempt:
                self._begin_anew()
        else:
            # If the connection was lost meanwhile, the next one includes them.
            if attempt is self._attempt and not attempt.is_over and not self._outcome.done():
                self._outcome.set_result(None)

    def _begin_anew(self) -> None:
        self._stale = True
        if self._attempt is not None:
            self._attempt.give_up()

    def stop_if_unused(self) -> None:
        if not self._subscriptions:
            self.stop()

    def stop(self) -> None:
        task, self._task, self._topics = self._task, None, ()
        if task is not None:
            for each in (task, *self._extending):
                each.cancel()
                self._ending.add(each)
                each.add_done_callback(self._ending.discard)
            if not self._outcome.done():
                self._outcome.set_exception(ClientClosed("notify adapter"))

    async def stopped(self) -> None:
        """Wait until everything that was stopped has ended."""
        if self._ending:
            await asyncio.wait(set(self._ending))

    async def _live(self) -> None:
        await self.stopped()  # there is one subscription at a time
        pauses, again = Pauses(), False
        while True:
            self._wanted.clear()
            self._stale, lived = False, 0.0
            attempt = self._attempt = _Attempt(self._subscribe)
            try:
                await attempt.confirmed(self._provider.confirm)
                began = monotonic()
                self._outcome.set_result(None)
                if again:
                    logger.info("listening for notifications again")
                    self._subscriptions.missed()
                again = True
                await attempt.until_over(self._heartbeat, self._provider.ping)
                lived = monotonic() - began
                if not self._stale:
                    if self._outcome.done():
                        self._outcome = _future()
                    logger.warning("the connection for notifications was lost: polling until it is back")
            except Exception as error:
                if not self._stale:
                    outcome, self._outcome = self._outcome, _future()
                    outcome.set_exception(error)
            finally:
                await finish(attempt.end())
            if not self._stale:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pauses.after(lived)):
                        await self._wanted.wait()

    async def _subscribe(self, ready: Callable[[], None]) -> None:
        channels = [self._channels[topic] for topic in self._topics]
        await self._provider.subscribe(channels, self._subscriptions.receive, ready)


class _Attempt:
    """One call of the provider's `subscribe`."""

    def __init__(self, subscribe: Callable[[Callable[[], None]], Coroutine[Any, Any, None]]) -> None:
        self._over = _future()
        self._ready = _future()
        self._subscription = asyncio.create_task(subscribe(self._on_ready), name="queuert-subscription")
        self._subscription.add_done_callback(_retrieve)
        self._subscription.add_done_callback(lambda _: self.give_up())

    def _on_ready(self) -> None:
        if self._over.done():  # the provider has swallowed the cancellation
            raise asyncio.CancelledError
        _resolve(self._ready)

    @property
    def is_over(self) -> bool:
        return self._over.done()

    def give_up(self) -> None:
        """`confirmed` and `until_over` end."""
        _resolve(self._over)

    async def confirmed(self, confirm: Callable[[], Awaitable[None]]) -> None:
        """Wait until the subscription is active; raises the error that prevented it."""

        async def active() -> None:
            await self._ready
            await confirm()

        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                await self._unless_over(active())
        except TimeoutError as error:
            raise NotifyUnavailable(f"could not begin to listen within {CONNECT_TIMEOUT:g} s") from error
        except Exception:
            if self._subscription.done() and not self._subscription.cancelled():
                await self._subscription  # raises the better error
            raise

    async def until_over(self, heartbeat: float, ping: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            done, _ = await asyncio.wait([self._over], timeout=heartbeat)
            if done:
                return
            try:
                async with asyncio.timeout(PING_TIMEOUT):
                    await self._unless_over(ping())
            except Exception as error:
                logger.debug("no answer on the connection for notifications: %r", error)
                return

    async def end(self) -> None:
        self.give_up()
        for _ in range(CANCEL_TIMES):
            self._subscription.cancel()
            done, _ = await asyncio.wait([self._subscription], timeout=CANCEL_AGAIN)
            if done:
                return
        logger.warning("a subscription for notifications has not ended, although it was cancelled")

    async def _unless_over(self, work: Coroutine[Any, Any, None]) -> None:
        working = asyncio.create_task(work)
        working.add_done_callback(_retrieve)
        try:
            await asyncio.wait([working, self._over], return_when=asyncio.FIRST_COMPLETED)
            if self._over.done():
                raise NotifyUnavailable("the connection for notifications was lost")
            working.result()
        finally:
            working.cancel()


def _future() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.add_done_callback(_retrieve)
    return future


def _retrieve(future: asyncio.Future[None]) -> None:
    """Mark the error as retrieved. If no caller waits for the future, asyncio would log it."""
    if not future.cancelled():
        future.exception()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
