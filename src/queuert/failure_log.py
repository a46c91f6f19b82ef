"""Logs failures that may repeat thousands of times: the first in full, the others as a count."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic
from typing import Any

INTERVAL = 60.0
"""Seconds between two records of the same failure."""


class _Kind:
    """One kind of failure: where it happens, and the class of the error."""

    __slots__ = ("logged_at", "more")

    def __init__(self, now: float) -> None:
        self.logged_at = now
        self.more = 0
        """How often it has happened since it was logged."""


class FailureLog:
    """Logs a failure once, and its repetitions once a minute with their number.

    Failures at different places (`what`), or of different classes, are logged separately. Memory
    stays small: a caller names a few places, and few classes of errors occur there.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._kinds: dict[str, dict[type[BaseException], _Kind]] = {}
        self._told_at: dict[str, float] = {}
        """When it was last logged that something works again. It may fail every other time."""

    def failed(
        self, what: str, error: BaseException, message: str, *args: object, extra: Mapping[str, Any] | None = None
    ) -> None:
        """Something failed: log it, unless the same was logged a moment ago."""
        now = monotonic()
        kinds = self._kinds.setdefault(what, {})
        kind = kinds.get(type(error))
        if kind is None:
            kinds[type(error)] = _Kind(now)
        elif now - kind.logged_at < INTERVAL:
            kind.more += 1
            return
        else:
            if kind.more:
                message, args = f"{message} (and %d times more since the last report)", (*args, kind.more)
            kind.logged_at, kind.more = now, 0
        self._logger.error(message, *args, exc_info=error, extra=extra)

    def worked(self, what: str) -> None:
        """It works now. If failures were not logged, log their number."""
        kinds = self._kinds.get(what)
        if not kinds:
            return
        now = monotonic()
        more = sum(kind.more for kind in kinds.values())
        if more and now - self._told_at.get(what, -INTERVAL) >= INTERVAL:
            self._told_at[what] = now
            self._logger.warning("%s works again; it had failed %d times more than was logged", what, more)
            for kind in kinds.values():
                kind.more = 0
        for error_type, kind in list(kinds.items()):
            if not kind.more and now - kind.logged_at >= INTERVAL:
                del kinds[error_type]
