"""Job ids: UUIDv7, so that the order of ids is the order of creation."""

from __future__ import annotations

import os
import re
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import accumulate

from queuert.base.times import EPOCH
from queuert.errors import InvalidJobId

GenerateId = Callable[[], str]
ValidateId = Callable[[str], bool | None]
"""Returns False, or raises `InvalidJobId`, for an id that it does not accept."""

_LOW_BITS = 48
_LOW_MASK = (1 << _LOW_BITS) - 1
_HIGH_MASK = (1 << 26) - 1
"""26 of the 74 random bits are above the last group of digits."""


class UuidV7:
    """Makes ids that strictly increase within a process.

    They also increase within one millisecond, and when the clock is set back.
    """

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._ms = 0
        self._high = 0
        self._low = 0
        self._prefix = ""
        """All but the last group of digits. It is the same for many ids."""

    def __call__(self) -> str:
        with self._lock:
            self._step(int.from_bytes(os.urandom(4), "big"))
            return f"{self._prefix}{self._low:012x}"

    def several(self, number: int) -> list[str]:
        """This many ids, in their order: cheaper than one by one."""
        steps = memoryview(os.urandom(4 * number)).cast("I")
        with self._lock:
            self._step(steps[0])
            lows = list(accumulate((1 + step for step in steps[1:]), initial=self._low))
            if lows[-1] <= _LOW_MASK:
                self._low = lows[-1]
                prefix = self._prefix
                return [f"{prefix}{low:012x}" for low in lows]
            found = [f"{self._prefix}{self._low:012x}"]
        return found + [self() for _ in range(number - 1)]

    def _step(self, random_step: int) -> None:
        now = self._clock_ms()
        if now > self._ms:
            random = int.from_bytes(os.urandom(10), "big")
            # Start in the lower half of the range, so that the steps upwards practically never
            # reach its end.
            self._move(now, random >> _LOW_BITS & _HIGH_MASK >> 1)
            self._low = random & _LOW_MASK
            return
        # Random steps, so that the ids of two processes do not collide.
        self._low += 1 + random_step
        if self._low > _LOW_MASK:
            self._low &= _LOW_MASK
            if self._high < _HIGH_MASK:
                self._move(self._ms, self._high + 1)
            else:
                self._move(self._ms + 1, 0)

    def _move(self, ms: int, high: int) -> None:
        self._ms, self._high = ms, high
        self._prefix = f"{ms >> 16:08x}-{ms & 0xFFFF:04x}-7{high >> 14:03x}-{0x8000 | high & 0x3FFF:04x}-"


generate_uuid7 = UuidV7()


is_uuid = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
"""Whether a text is a UUID in its canonical form."""


def time_of(job_id: str) -> datetime | None:
    """When a UUIDv7 was made; None for any other id."""
    if not is_uuid(job_id) or job_id[14] != "7":
        return None
    return EPOCH + timedelta(milliseconds=int(job_id[:8] + job_id[9:13], 16))


def validate_uuid(job_id: str) -> None:
    """Accept any UUID in its canonical lower-case form, so that a job has one spelling only."""
    if not isinstance(job_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidJobId(job_id, f"it must be a string, got {type(job_id).__name__}")
    try:
        canonical = str(uuid.UUID(job_id))
    except ValueError:
        raise InvalidJobId(job_id, "it is not a UUID") from None
    if canonical != job_id:
        raise InvalidJobId(job_id, f"write it in its canonical form, {canonical}")
