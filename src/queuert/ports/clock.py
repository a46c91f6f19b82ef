"""Virtual time, for tests: a clock that stands still until it is moved."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from queuert.base.arguments import Duration, aware, seconds
from queuert.errors import InvalidArgument


class Clock:
    """The time of a database in tests. It stands still until it is moved, and never goes back.

        clock = testing.Clock()
        client = queuert.connect("sqlite:///test.db", table_prefix="test_", jobs=[…], clock=clock)

    Everything that the database decides follows it: when a job is due, retries, leases, deadlines,
    pauses. The rest of the process uses the real time.

    Args:
        start: The first moment (default: the real time).
    """

    def __init__(self, start: datetime | None = None) -> None:
        self._now = datetime.now(UTC) if start is None else aware(start, "start")
        self._lock = threading.Lock()
        self._rows: list[weakref.WeakMethod[Callable[[datetime], None]]] = []

    def now(self) -> datetime:
        """The time."""
        return self._now

    def advance(self, by: Duration) -> datetime:
        """Move the time forward. Returns the new time.

        Args:
            by: How far, as a timedelta or in seconds.
        """
        length = seconds(by, "by")
        try:
            moment = self._now + timedelta(seconds=length)
        except OverflowError:
            raise InvalidArgument(f"{by!r} from now is later than the year 9999") from None
        return self.move_to(moment)

    def move_to(self, moment: datetime) -> datetime:
        """Move the time forward to a moment. Returns the new time.

        Args:
            moment: The moment, with a time zone.
        """
        moment = aware(moment, "moment")
        with self._lock:
            if moment < self._now:
                raise InvalidArgument(f"the time of a test never goes back: it is {self._now}, got {moment}")
            for reference in self._rows:
                write = reference()
                if write is not None:
                    write(moment)
            self._now = moment
        return moment

    def __repr__(self) -> str:
        return f"<Clock {self._now}>"


def follow(clock: Clock, write: Callable[[datetime], None]) -> None:
    """From now on, write each new time into the row of a database, while its adapter is in use.

    `write` is a method of the adapter.
    """
    clock._rows.append(weakref.WeakMethod(write))  # pyright: ignore[reportPrivateUsage]


def catch_up(clock: Clock, moment: datetime) -> None:
    """A database for tests has this time, perhaps of an earlier test: it is not set back."""
    with clock._lock:  # pyright: ignore[reportPrivateUsage]
        clock._now = max(clock._now, moment)  # pyright: ignore[reportPrivateUsage]
