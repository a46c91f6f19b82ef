"""One connection that listens for everybody, on an event loop.

It is opened for the first subscription and closed after the last. Between the two it lives in a task of its own, which
connects again when the connection is lost, and for as long as it takes. Who subscribes meanwhile waits for the next
attempt, which is made at once, and hears of its failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Protocol

from queuert.adapters.broadcast.messages import Subscriptions
from queuert.adapters.broadcast.pauses import CONNECT_TIMEOUT, PING_TIMEOUT, Pauses
from queuert.adapters.finishing import finish
from queuert.errors import ClientClosed, NotifyUnavailable

logger = logging.getLogger("queuert.notify")

ASK_AGAIN = 0.25
"""Seconds until a task that was cancelled is cancelled again. Before Python 3.12, `wait_for` in the code of others may
keep a cancellation for itself."""

OnMessage = Callable[[str, str | bytes], None]
"""Called with channel and payload, whatever they are."""
OnLost = Callable[[], None]


class Link(Protocol):
    """A connection that listens."""

    async def ping(self) -> None:
        """Raise if the server does not answer."""
        ...

    async def close(self) -> None:
        """Never raises, and does not take long."""
        ...


OpenLink = Callable[[OnMessage, OnLost], Awaitable[Link]]
"""Connects, begins to listen, and calls these from then on. What it has opened when it fails, it closes,
and lets nobody cut that short."""


class Listener:
    def __init__(self, open_link: OpenLink, subscriptions: Subscriptions, heartbeat: float) -> None:
        self._open_link = open_link
        self._subscriptions = subscriptions
        self._heartbeat = heartbeat
        self._life: _Life | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def active(self) -> None:
        """Until the connection listens; raises what prevented it."""
        if self._life is None:
            self._life = _Life(self._open_link, self._subscriptions, self._heartbeat)
        await self._life.connected()

    def stop_if_unused(self) -> None:
        if not self._subscriptions:
            self.stop()

    def stop(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            self._ending.add(life.task)
            life.task.add_done_callback(self._ending.discard)
            life.end()

    async def stopped(self) -> None:
        """Until all that was stopped has come to its end."""
        while self._ending:
            await asyncio.wait(set(self._ending), timeout=ASK_AGAIN)
            for task in self._ending:
                task.cancel()


class _Life:
    """From the first subscription to the last."""

    def __init__(self, open_link: OpenLink, subscriptions: Subscriptions, heartbeat: float) -> None:
        self._open_link = open_link
        self._subscriptions = subscriptions
        self._heartbeat = heartbeat
        self._pauses = Pauses()
        self._ended = False
        self._wanted = asyncio.Event()
        self._outcome = self._new_outcome()
        """Of the attempt to connect that comes next, or is under way; done as long as we are connected."""
        self.task = asyncio.create_task(self._live(), name="queuert-listener")

    async def connected(self) -> None:
        self._wanted.set()
        await asyncio.shield(self._outcome)

    def end(self) -> None:
        self._ended = True
        self.task.cancel()
        if not self._outcome.done():
            self._outcome.set_exception(ClientClosed("notify adapter"))

    async def _live(self) -> None:
        before = False
        while True:
            self._wanted.clear()
            lost = asyncio.Event()
            try:
                link = await self._open(lost)
            except Exception as error:
                if self._ended:
                    return
                self._failed(error)
                await self._pause(0.0)
                continue
            since = monotonic()
            try:
                if self._ended:  # the code of others has kept the cancellation for itself
                    return
                self._outcome.set_result(None)
                if before:
                    logger.info("listening for notifications again")
                    self._subscriptions.missed()
                before = True
                await self._until_lost(link, lost)
                self._outcome = self._new_outcome()
                logger.warning("the connection that listens for notifications was lost: polling until it is back")
            finally:
                await finish(link.close())
            await self._pause(monotonic() - since)

    async def _open(self, lost: asyncio.Event) -> Link:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._open_link(self._subscriptions.receive, lost.set)
        except TimeoutError as error:
            raise NotifyUnavailable(f"no connection that listens within {CONNECT_TIMEOUT:g} s") from error

    async def _until_lost(self, link: Link, lost: asyncio.Event) -> None:
        while True:
            try:
                async with asyncio.timeout(self._heartbeat):
                    await lost.wait()
                    return
            except TimeoutError:
                pass
            try:
                async with asyncio.timeout(PING_TIMEOUT):
                    await link.ping()
            except Exception:
                return

    async def _pause(self, lived: float) -> None:
        try:
            async with asyncio.timeout(self._pauses.after(lived)):
                await self._wanted.wait()
        except TimeoutError:
            return

    def _failed(self, error: Exception) -> None:
        outcome, self._outcome = self._outcome, self._new_outcome()
        outcome.set_exception(error)

    def _new_outcome(self) -> asyncio.Future[None]:
        outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Often there is nobody who waits for it; then an error in it is no news.
        outcome.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return outcome
