"""Waiting for a socket in a thread, so that another thread can end it."""

from __future__ import annotations

import contextlib
import selectors
import socket


class Bell:
    def __init__(self) -> None:
        self._bell, self._rung = socket.socketpair()
        self._bell.settimeout(0)

    def wait(self, descriptor: int, timeout: float) -> bool:
        """Until there is something to read, or somebody has rung: True; or the time is up."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._rung, selectors.EVENT_READ)
            selector.register(descriptor, selectors.EVENT_READ)
            return bool(selector.select(timeout))

    def ring(self) -> None:
        """From now on, nobody waits."""
        with contextlib.suppress(OSError):  # full, which will do
            self._bell.send(b"!")

    def close(self) -> None:
        self._bell.close()
        self._rung.close()
