"""How many jobs to claim beyond the free slots, so that quick handlers need not wait for the next
claim.

Other workers cannot get jobs that are claimed ahead. So a worker claims no more of them than it
finishes in about `HOLD` seconds, at the speed last measured, and none unless every slot is reused
within that time. Jobs that wait longer than `STALE`, behind a slow handler, are given back.
"""

from __future__ import annotations

HOLD = 0.1
STALE = 0.3
_LONG_ENOUGH = 0.002
"""Seconds. A shorter measurement is too inaccurate."""


class Prefetch:
    def __init__(self, slots: int, most: int, now: float) -> None:
        self._slots = slots
        self._most = most
        self._since = now
        self._ended = 0
        self._rate = 0.0
        self._idle_since: float | None = now
        self.ahead = 0
        """How many jobs without a slot may be held."""

    def idle(self, now: float) -> None:
        """No handler is running any more."""
        self._idle_since = now

    def busy(self, now: float) -> None:
        """A handler is running again.

        The time that a claim or a settlement took is not counted: it does not depend on the
        handlers.
        """
        if self._idle_since is not None:
            self._since += self._moment(self._idle_since, now)
            self._idle_since = None

    def _moment(self, since: float, now: float) -> float:
        """The time that has passed, or 0 if it is long: then there was nothing to do."""
        return now - since if now - since <= HOLD else 0.0

    def observe(self, ended: int, now: float) -> None:
        """`ended`: how many handlers have ended so far.

        The slower of the last two measurements counts.
        """
        elapsed = now - self._since
        if self._idle_since is not None:
            elapsed -= self._moment(self._idle_since, now)
        if not self._most or elapsed < _LONG_ENOUGH:
            return
        rate = (ended - self._ended) / elapsed
        within_hold = int(min(rate, self._rate) * HOLD)
        self.ahead = min(within_hold, self._most) if within_hold >= self._slots else 0
        self._since, self._ended, self._rate = now, ended, rate
        if self._idle_since is not None:
            self._idle_since = now

    def stalled(self) -> None:
        """Jobs that were claimed ahead have waited for too long.

        Claim none ahead until two good measurements in a row.
        """
        self.ahead, self._rate = 0, 0.0

    @property
    def refill_at(self) -> int:
        """Claim again when no more than this are left: in one large step rather than in many small
        ones.
        """
        return max(0, min(self.ahead // 2, self.ahead - self._slots))
