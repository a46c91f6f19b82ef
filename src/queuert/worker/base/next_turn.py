"""Why and when the main loop should take its next turn."""

from __future__ import annotations

import asyncio
import time


class NextTurn:
    """Reasons are added from everywhere. Only the main loop takes them away, as it acts on them."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        """Set when the loop should look at once."""
        self.wants_claim = True
        """There may be something to claim."""
        self.wants_unblocking = False
        """There may be dependents of completed chains to be freed."""
        self.due_at: float | None = None
        """When there will be something to claim, on the monotonic clock."""

    def claim_soon(self) -> None:
        self.wants_claim = True
        self.event.set()

    def unblock_soon(self) -> None:
        self.wants_unblocking = True
        self.event.set()

    def claim_in(self, delay: float) -> None:
        """Look for jobs then, at the latest."""
        due_at = time.monotonic() + delay
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)

    def check_due(self) -> None:
        """If the time has come, there is something to claim."""
        if self.due_at is not None and time.monotonic() >= self.due_at:
            self.due_at = None
            self.wants_claim = True
