"""How long to wait before the next try."""

from __future__ import annotations

import random
from dataclasses import dataclass

from queuert.base.arguments import Duration, seconds
from queuert.errors import InvalidArgument

LONGEST = 100 * 365 * 86400.0
"""A hundred years: some databases cannot store dates that are much later."""


@dataclass(frozen=True)
class Backoff:
    """How long to wait after a failed attempt: longer after each one, up to a maximum.

    The delay after attempt n is `min(initial * multiplier ** (n - 1), maximum)`. Jitter then
    shortens it by a random part.

    Args:
        initial: The delay after the first attempt, as a timedelta or in seconds: above 0, and not
            above `maximum` (default: 10).
        multiplier: The factor by which each delay is longer than the one before, 1 or more
            (default: 2).
        maximum: The longest delay, as a timedelta or in seconds (default: 300).
        jitter: The largest part of a delay that is left out at random, from 0 to 1 (default: 0).
    """

    initial: Duration = 10.0
    multiplier: float = 2.0
    maximum: Duration = 300.0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        initial, maximum = seconds(self.initial, "the initial backoff"), seconds(self.maximum, "the maximum backoff")
        if initial == 0:
            raise InvalidArgument(
                "the initial backoff must be above 0 seconds: without a pause, failures repeat at once"
            )
        if maximum > LONGEST:
            raise InvalidArgument(f"the maximum backoff must be a hundred years or less, got {self.maximum!r}")
        if initial > maximum:
            raise InvalidArgument(
                f"the initial backoff ({initial:g} s) must not be above the maximum ({maximum:g} s): set maximum="
            )
        if not _is_number(self.multiplier) or not 1 <= self.multiplier < float("inf"):
            raise InvalidArgument(f"the backoff's multiplier must be 1 or more, got {self.multiplier!r}")
        if not _is_number(self.jitter) or not 0 <= self.jitter <= 1:
            raise InvalidArgument(f"the backoff's jitter must be between 0 and 1, got {self.jitter!r}")

    def delay(self, attempt_number: int) -> float:
        """The delay in seconds after an attempt.

        Args:
            attempt_number: The number of the attempt, counted from 1.
        """
        initial, maximum = seconds(self.initial, "initial"), seconds(self.maximum, "maximum")
        try:
            delay = min(initial * float(self.multiplier) ** (attempt_number - 1), maximum)
        except OverflowError:
            delay = maximum
        return delay * (1 - self.jitter * random.random())


def check_backoff(backoff: object, what: str) -> None:
    if not isinstance(backoff, Backoff):
        raise InvalidArgument(f"{what} must be a Backoff, got {backoff!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


JOB_BACKOFF = Backoff()
RECOVERY_BACKOFF = Backoff(initial=0.5, maximum=30.0, jitter=0.5)


class Recovery:
    """Counts the failures of one loop in a row."""

    def __init__(self, backoff: Backoff, max_attempts: int = 0) -> None:
        self._backoff = backoff
        self._max_attempts = max_attempts
        self.failures = 0

    def next_delay(self) -> float:
        self.failures += 1
        return self._backoff.delay(self.failures)

    @property
    def exhausted(self) -> bool:
        """Whether there were as many failures as allowed. 0 allows any number."""
        return 0 < self._max_attempts <= self.failures

    def reset(self) -> None:
        self.failures = 0
