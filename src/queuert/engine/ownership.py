"""The owner of a client: the process, and for an async client the event loop, that entered it.

Connections, locks and threads belong there too. Used from elsewhere, some drivers raise strange
errors, some wait for ever, and some break the connections of the owner. So every call checks this
first. A client that was made, but not used yet, has no owner: so it may be made before a fork.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import get_running_loop
from threading import get_ident
from weakref import WeakSet

from queuert.errors import ClientClosed, ClientMisused

_owned: WeakSet[Owned] = WeakSet()
_inherited: list[Owned] = []
"""Never released: a forked child must not close or garbage-collect the connections of its
parent."""


class Owned:
    """What a client's calls check first."""

    _with = "async with"

    def __init__(self) -> None:
        self.closed = False
        self._is_open = False
        self._thread = 0
        """The thread of its loop, while it is open and in the process that it belongs to."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process: int | None = None

    def open(self) -> None:
        """From here on it can be used: its block begins, or it needs none."""
        self._is_open = True
        self.check_open()

    def check_open(self) -> None:
        """Raise if it is closed or was never opened, or belongs to another loop or process."""
        # A thread runs one loop at a time. To ask asyncio for it would cost a system call.
        if self._thread != get_ident() or self._loop is None or not self._loop.is_running():
            self._take_or_refuse()

    def check_owner(self) -> None:
        """Raise if it belongs to another loop that is still there, or to another process."""
        if self._process is not None and self._process != os.getpid():
            raise self._forked()
        if self._loop is not None and not self._loop.is_closed() and self._loop is not _current_loop():
            raise _on_another_loop()

    def end(self) -> None:
        self.closed = True
        self._thread = 0

    def _take_or_refuse(self) -> None:
        if self._process is not None and self._process != os.getpid():
            raise self._forked()
        if self.closed:
            raise ClientClosed
        if not self._is_open:
            raise ClientMisused(
                f"this client was not opened: use it in the block of `{self._with} client:`, which opens it and "
                "closes it at the end"
            )
        self._take_loop()
        self._process, self._thread = os.getpid(), get_ident()
        _owned.add(self)

    def _take_loop(self) -> None:
        loop = _current_loop()
        if loop is None or (self._loop is not None and self._loop is not loop):
            raise _on_another_loop()
        self._loop = loop

    def _forked(self) -> ClientMisused:
        return ClientMisused(
            f"this client belongs to the process {self._process}, and this is a forked child ({os.getpid()}): "
            "make the client after the fork, in each process, for example in gunicorn's post_fork or where your "
            "application starts"
        )


class OwnedByProcess(Owned):
    """The same for a sync client, which threads share."""

    _with = "with"

    def check_open(self) -> None:
        if not self._thread:
            self._take_or_refuse()

    def _take_loop(self) -> None:
        """Any thread may use it, with or without an event loop."""


def _on_another_loop() -> ClientMisused:
    return ClientMisused(
        "this client belongs to the event loop that entered it, and was used outside of it: make a client for each "
        "event loop, or call it there with asyncio.run_coroutine_threadsafe(). Code without an event loop uses "
        "connect_sync()"
    )


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return get_running_loop()
    except RuntimeError:
        return None


def _after_fork() -> None:
    for each in list(_owned):
        each.end()  # there is nothing here that it could close
        _inherited.append(each)
    _owned.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
