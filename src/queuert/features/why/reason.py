"""What all reasons share."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from queuert.base.times import clock


@dataclass(frozen=True)
class Reason:
    """One reason why a job is not running.

    `str(reason)` tells what it is.
    """

    in_the_way: ClassVar[bool] = True
    """Whether a worker that is idle cannot take the job because of it."""

    @property
    def remedy(self) -> str:
        """What would end it."""
        return self._remedy()

    def _remedy(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Holder:
    """A running job."""

    job_id: str
    """Its id."""
    job_type: str
    """Its type."""
    worker_id: str
    """The worker that runs it."""
    since: datetime
    """When it was claimed."""
    now: datetime
    """When this was read."""

    def __str__(self) -> str:
        return f"the oldest is {self.job_id} ({self.job_type}), since {clock(self.since, self.now)}"


def number_of(number: int, one: str) -> str:
    return f"{number} {one}" if number == 1 else f"{number} {one}s"
