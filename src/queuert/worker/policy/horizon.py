"""Jobs that are claimed ahead, and how many of them may begin.

A job whose handler never began must not lose an attempt if the worker is killed. So the database
holds the worker's horizon: handlers of its jobs up to this ordinal may have begun. A handler begins
only after that is stored. Then the reaper of another worker knows which jobs cannot have begun.
Jobs that begin at once have no ordinal: their attempt counts from the claim on.

The horizon moves before the last covered job begins, in one small write for a few jobs. Handlers
wait for it only if they begin faster than the database can store it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from queuert.base.failure_log import FailureLog
from queuert.worker.handlers.claim import Claim

logger = logging.getLogger("queuert.worker")

WINDOW = 0.01
"""Seconds. A move covers about as many jobs as begin in this time: few if handlers are slow."""
LEAST = 8
"""Jobs that a move covers at least."""
MOST = 38
MOST_PER_SLOT = 10
"""The most jobs that a move covers: `MOST`, and this many more for each slot above ten. So no more
jobs that never began can lose an attempt when a worker is killed.
"""
LOW = 2
"""A move is sent when only half of what it may cover is left."""
MARGIN = 3
"""A move covers at least this many times as many jobs as began while the last move was being
stored.
"""
RETRY_AFTER = 0.1
"""Seconds until the next try, after a move that failed."""


class Ordinals:
    """The ordinals of one worker's claims. They go on when the worker is stopped and started
    again.
    """

    def __init__(self) -> None:
        self._next = 1
        self.horizon = 0
        """Stored: handlers up to this ordinal may begin."""

    def take(self, number: int) -> int:
        """Reserve this many ordinals, and return the first.

        No ordinal is ever used twice: a claim whose answer was lost may have stored them.
        """
        first = self._next
        self._next += number
        return first


class ClaimedAhead:
    """Jobs that wait for a slot, in their order."""

    def __init__(
        self,
        ordinals: Ordinals,
        slots: int,
        store: Callable[[int], Awaitable[bool]],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        on_moved: Callable[[], None],
    ) -> None:
        self._ordinals = ordinals
        self._most = MOST + MOST_PER_SLOT * max(0, slots - 10)
        self._store = store
        self._spawn = spawn
        self._on_moved = on_moved
        self._log = FailureLog(logger)
        self.claims: deque[Claim] = deque()
        self._covered = 0
        """How many of them may begin."""
        self._reach = LEAST
        """How many a move covers."""
        self._moving = False
        self._late = False
        """Whether jobs had to wait for the last move."""
        self._sent_at = time.monotonic()
        self._begun = 0
        """How many have begun since the last move was sent."""
        self._meanwhile = 0
        """How many began while the last move was being stored."""
        self.leaving: set[int] = set()
        """The ordinals of jobs that were given back and are still ours in the database. The horizon
        must not pass them: the jobs never began.
        """

    @property
    def since(self) -> float | None:
        """When the first of them was claimed."""
        return self.claims[0].claimed_at if self.claims else None

    def at_once(self, free: int) -> int:
        """How many jobs of the next claim need no ordinal, because they will begin before a move
        could cover them.
        """
        return max(0, max(free, self._reach) - len(self.claims))

    def covers(self, claim: Claim) -> bool:
        ordinal = claim.claimed.ordinal
        return ordinal is None or ordinal <= self._ordinals.horizon

    def add(self, claim: Claim) -> None:
        if self._covered == len(self.claims) and self.covers(claim):
            self._covered += 1
        self.claims.append(claim)

    def next(self) -> Claim | None:
        """The first one, if it may begin, or if it is lost: then no move is needed for it. It no
        longer waits.
        """
        if self._covered:
            self._covered -= 1
            self._begun += 1
            return self.claims.popleft()
        return self.claims.popleft() if self.claims and self.claims[0].is_lost else None

    def give_up(self, which: Callable[[Claim], bool] = lambda _: True) -> list[Claim]:
        """All of them, or those. None of these waits any more. `has_left` must be called when
        they are settled.
        """
        given = [claim for claim in self.claims if which(claim)]
        self.leaving.update(claim.claimed.ordinal or 0 for claim in given if not self.covers(claim))
        kept = [claim for claim in self.claims if not which(claim)] if len(given) < len(self.claims) else []
        self.claims.clear()
        self._covered = 0
        for claim in kept:
            self.add(claim)
        return given

    def has_left(self, claim: Claim) -> None:
        """It was given back, and that is stored."""
        self.leaving.discard(claim.claimed.ordinal or 0)
        self.look_ahead()

    # Moving the horizon

    def look_ahead(self) -> None:
        """Move the horizon if the jobs that it covers will soon have begun."""
        # Called for every job: mostly, the first comparison is enough.
        if self._covered <= self._reach // LOW and not self._moving and self._must_move():
            self._moving = True
            self._spawn(self._move())

    def _must_move(self) -> bool:
        return self._covered < len(self.claims) and self._covered <= self._reach // LOW and not self.leaving

    async def _move(self) -> None:
        try:
            while self._must_move():
                self._measure()
                horizon = self._target()
                if await self._is_stored(horizon):
                    self._moved_to(horizon)
                else:
                    await asyncio.sleep(RETRY_AFTER)
        finally:
            self._moving = False

    async def _is_stored(self, horizon: int) -> bool:
        try:
            stored = await self._store(horizon)
        except Exception as error:
            self._log.failed("storing the horizon", error, "could not store which handlers may begin, trying again in "
                             "%.1f s; jobs that were claimed ahead wait meanwhile", RETRY_AFTER)  # fmt: skip
            return False
        self._log.worked("storing the horizon")
        return stored

    def _target(self) -> int:
        """The ordinal that covers as many as a move should."""
        first = [claim.claimed.ordinal or 0 for claim, _ in zip(self.claims, range(self._reach), strict=False)]
        return max(first)

    def _moved_to(self, horizon: int) -> None:
        self._ordinals.horizon = max(self._ordinals.horizon, horizon)
        self._meanwhile, self._late = self._begun, not self._covered
        if self._late:
            # They begin faster than the horizon moves: larger steps.
            self._reach = min(2 * self._reach, self._most)
        while self._covered < len(self.claims) and self.covers(self.claims[self._covered]):
            self._covered += 1
        self._on_moved()

    def _measure(self) -> None:
        now = time.monotonic()
        in_window = int(self._begun / max(now - self._sent_at, 0.001) * WINDOW)
        # Slowly less, and not after a move that came late: they had to wait for it.
        least = self._reach if self._late else self._reach * 7 // 8
        self._reach = min(max(in_window, self._meanwhile * MARGIN, least, LEAST), self._most)
        self._sent_at, self._begun = now, 0
