"""Queues, as users name them."""

from __future__ import annotations

from dataclasses import dataclass

from queuert.base.arguments import MAX_NAME_LENGTH, PRIORITY_RANGE, check_text
from queuert.errors import InvalidArgument
from queuert.records.model import DEFAULT_PRIORITY


@dataclass(frozen=True)
class Queue:
    """A named group of job types, and how a worker serves it: `Worker(…, queues=[Queue("mail")])`.

    Args:
        name: The queue's name, as in `class SendMail(…, queue="mail")` or
            `handles(…, queue="mail")`.
        priority: The queue with the lowest number is served first (default: 100).
        max_concurrency: How many jobs of this queue may run at once in all workers together. 0
            pauses the queue, None means no limit (default: None).
    """

    name: str
    priority: int = DEFAULT_PRIORITY
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        check_text(self.name, "a queue's name", MAX_NAME_LENGTH)
        if type(self.priority) is not int or not PRIORITY_RANGE[0] <= self.priority <= PRIORITY_RANGE[1]:
            raise InvalidArgument(f"queue {self.name!r}: priority must be an integer, got {self.priority!r}")
        check_cap(self.max_concurrency, f"queue {self.name!r}: max_concurrency")


def check_cap(cap: int | None, what: str) -> None:
    if cap is not None and (type(cap) is not int or cap < 0):
        raise InvalidArgument(f"{what} must be 0 (paused), a positive number, or None (no limit), got {cap!r}")
