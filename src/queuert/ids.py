"""Job ids: UUIDv7, so that the order of ids is the order of creation."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable

from queuert.errors import InvalidJobId

GenerateId = Callable[[], str]
ValidateId = Callable[[str], None]

_RANDOM_BITS = 74
_RANDOM_MASK = (1 << _RANDOM_BITS) - 1


class UuidV7:
    """Makes ids that rise strictly within a process, also within a millisecond and when the clock is set back."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._clock_ms = clock_ms
        self._lock = threading.Lock()
        self._last_ms = 0
        self._last_random = 0

    def __call__(self) -> str:
        with self._lock:
            now = self._clock_ms()
            if now > self._last_ms:
                # Half of the range is left above the start, so that stepping up practically never runs out.
                self._last_ms = now
                self._last_random = int.from_bytes(os.urandom(10), "big") & (_RANDOM_MASK >> 1)
            else:
                # Random steps keep ids unguessable enough that two processes do not collide.
                self._last_random += 1 + int.from_bytes(os.urandom(4), "big")
                if self._last_random > _RANDOM_MASK:
                    self._last_ms += 1
                    self._last_random &= _RANDOM_MASK >> 1
            ms, random = self._last_ms, self._last_random
        text = f"{ms:012x}7{random >> 62:03x}{0x8 | (random >> 60) & 0x3:x}{random & ((1 << 60) - 1):015x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


generate_uuid7: GenerateId = UuidV7()


def validate_uuid(job_id: str) -> None:
    """Any UUID will do, in its canonical lower-case form: one job must not be reachable under two spellings."""
    if not isinstance(job_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidJobId(job_id, f"it must be a string, got {type(job_id).__name__}")
    try:
        canonical = str(uuid.UUID(job_id))
    except ValueError:
        raise InvalidJobId(job_id, "it is not a UUID") from None
    if canonical != job_id:
        raise InvalidJobId(job_id, f"write it in its canonical form, {canonical}")
