"""The timeouts and pauses of a listener."""

from __future__ import annotations

import random

CONNECT_TIMEOUT = 10.0
"""Seconds until an attempt to subscribe is given up."""
HEARTBEAT = 30.0
"""Seconds between two checks that the subscription is alive: a dead network reports no error."""
PING_TIMEOUT = 10.0


class Pauses:
    """The pause before the next attempt to connect: it grows from about 0.1 s to 15 s."""

    FIRST, LAST = 0.1, 15.0
    STEADY = 5.0
    """Seconds after which a connection counts as good, and the pauses start again from the
    shortest."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, lived: float) -> float:
        """The pause after a connection that lived this many seconds (0.0: the attempt failed)."""
        if lived >= self.STEADY:
            self._failures = 0
        pause = min(self.FIRST * 2.0**self._failures, self.LAST) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 20)
        return pause
