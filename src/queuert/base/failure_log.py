"""Logs failures that may repeat thousands of times: the first in full, the others as a count."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping
from time import monotonic
from typing import Any

INTERVAL = 60.0
"""Seconds between two records of the same failure."""


class Repetitions:
    """Which failures are to be logged, and how often each has happened without a record.

    It uses little memory if there are few kinds of failures.
    """

    def __init__(self) -> None:
        self._logged_at: dict[Hashable, float] = {}
        self._more: dict[Hashable, int] = {}

    def next(self, kind: Hashable) -> int | None:
        """How often this has failed since it was logged; None if it is not to be logged now."""
        now = monotonic()
        if now - self._logged_at.get(kind, -INTERVAL) < INTERVAL:
            self._more[kind] = self._more.get(kind, 0) + 1
            return None
        self._logged_at[kind] = now
        return self._more.pop(kind, 0)

    @property
    def number(self) -> int:
        """How many failures were not logged."""
        return sum(self._more.values())

    def forget(self) -> None:
        """The failures that were not logged are reported."""
        self._more.clear()


class FailureLog:
    """Logs a failure once, and its repetitions once a minute with their number.

    Failures at different places (`what`), or of different classes, are logged separately.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._failures: dict[str, Repetitions] = {}
        self._ends = Repetitions()
        """Limits the records that something works again: it may fail every other time."""

    def failed(
        self, what: str, error: BaseException, message: str, *args: object, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Something failed: log it, unless the same was logged a moment ago."""
        more = self._failures.setdefault(what, Repetitions()).next(type(error).__qualname__)
        if more is None:
            return
        if more:
            message, args = f"{message} (and %d times more since the last report)", (*args, more)
        self._logger.error(message, *args, exc_info=error, extra=extra)

    def worked(self, what: str) -> None:
        """It works now. If failures were not logged, log their number."""
        failures = self._failures.get(what)
        if failures is None or not failures.number or self._ends.next(what) is None:
            return
        self._logger.warning("%s works again; it had failed %d times more than was logged", what, failures.number)
        failures.forget()
