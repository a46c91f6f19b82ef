"""How patient a listener is."""

from __future__ import annotations

import random

CONNECT_TIMEOUT = 10.0
"""Seconds until an attempt to listen is given up."""
HEARTBEAT = 30.0
"""Seconds between two looks whether the server is still there: a dead network says nothing."""
PING_TIMEOUT = 10.0


class Pauses:
    """How long to wait before the next attempt to connect: from a twentieth of a second to 15 s."""

    FIRST, LAST = 0.1, 15.0
    STEADY = 5.0
    """Seconds that a connection must have held to be taken for a good one."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, lived: float) -> float:
        """The pause after an attempt that failed (0.0), or after a connection that lived so many seconds."""
        if lived >= self.STEADY:
            self._failures = 0
        pause = min(self.FIRST * 2.0**self._failures, self.LAST) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 20)
        return pause
