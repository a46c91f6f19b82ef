"""One connection that listens for everybody, in a thread of its own.

The counterpart of `listener` for sync clients. Callbacks are called in this thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic
from typing import Protocol

from queuert.adapters.broadcast.listener import OnMessage
from queuert.adapters.broadcast.messages import Subscriptions
from queuert.adapters.broadcast.pauses import PING_TIMEOUT, Pauses
from queuert.errors import ClientClosed

logger = logging.getLogger("queuert.notify")


class SyncLink(Protocol):
    """A connection that listens."""

    def receive(self, timeout: float) -> bool:
        """Hand on what comes. True as soon as the server has said anything, or `interrupt` was called; False when the
        time is up. Raises when the connection is lost."""
        ...

    def ping(self) -> None:
        """Ask the server for a sign of life, which `receive` will see; do not wait for it."""
        ...

    def interrupt(self) -> None:
        """Called by another thread: end a `receive` that is under way, or the next one. Never raises."""
        ...

    def close(self) -> None:
        """Never raises, and does not take long."""
        ...


OpenSyncLink = Callable[[OnMessage], SyncLink]
"""Connects within `CONNECT_TIMEOUT` and begins to listen. What it has opened when it fails, it closes."""


class ListenerThread:
    """From the first subscription to the last. Who subscribes while nothing is heard makes it try again at once."""

    def __init__(self, open_link: OpenSyncLink, subscriptions: Subscriptions, heartbeat: float) -> None:
        self._open_link = open_link
        self._subscriptions = subscriptions
        self._heartbeat = heartbeat
        self._pauses = Pauses()
        self._mutex = threading.Lock()
        self._outcome: Future[None] = Future()
        """Of the attempt to connect that comes next, or is under way; done as long as we are connected."""
        self._wanted = threading.Event()
        self._link: SyncLink | None = None
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="queuert-listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wanted(self) -> Future[None]:
        with self._mutex:
            self._wanted.set()
            return self._outcome

    def stop(self) -> None:
        """Waits for the thread, unless a callback in it is who asks."""
        with self._mutex:
            self._stopping = True
            self._wanted.set()
            if self._link is not None:
                self._link.interrupt()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        try:
            self._live()
        finally:
            with self._mutex:
                if not self._outcome.done():
                    self._outcome.set_exception(ClientClosed("notify adapter"))

    def _live(self) -> None:
        before = False
        while not self._stopping:
            self._wanted.clear()
            try:
                link = self._open_link(self._subscriptions.receive)
            except Exception as error:
                self._failed(error)
                self._pause(0.0)
                continue
            since = monotonic()
            try:
                self._use(link)
                if before:
                    logger.info("listening for notifications again")
                    self._subscriptions.missed()
                before = True
                self._until_lost(link)
            finally:
                self._drop(link)
            if not self._stopping:
                logger.warning("the connection that listens for notifications was lost: polling until it is back")
                self._pause(monotonic() - since)

    def _use(self, link: SyncLink) -> None:
        with self._mutex:
            self._link = link
            self._outcome.set_result(None)

    def _drop(self, link: SyncLink) -> None:
        with self._mutex:
            self._link = None
            if not self._stopping:
                self._outcome = Future()
        link.close()

    def _until_lost(self, link: SyncLink) -> None:
        asked = False
        try:
            while not self._stopping:
                if link.receive(PING_TIMEOUT if asked else self._heartbeat):
                    asked = False
                elif asked:
                    return  # it has had its time
                else:
                    link.ping()
                    asked = True
        except Exception as error:
            logger.debug("the connection that listens for notifications: %s", error)

    def _pause(self, lived: float) -> None:
        if not self._stopping:
            self._wanted.wait(self._pauses.after(lived))

    def _failed(self, error: Exception) -> None:
        with self._mutex:
            outcome, self._outcome = self._outcome, Future()
        outcome.set_exception(error)
