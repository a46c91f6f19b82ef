"""The statuses of jobs and chains."""

from __future__ import annotations

from typing import Literal, get_args

from queuert.errors import InvalidArgument

Status = Literal["blocked", "pending", "running", "completed", "failed", "cancelled", "expired"]
STATUSES: tuple[Status, ...] = get_args(Status)
TERMINAL: frozenset[Status] = frozenset(("completed", "failed", "cancelled", "expired"))
REPAIRABLE: frozenset[Status] = frozenset(("failed", "cancelled", "expired"))
"""The ends that `retry` with another input can undo."""
IN_STATS: tuple[Status, ...] = ("blocked", "pending", "running", "failed")
"""Those that `stats` counts, as the fields of `TypeStats`."""
OPEN: frozenset[Status] = frozenset(("blocked", "pending", "running"))


def check_status(status: object) -> None:
    if not isinstance(status, str) or status not in STATUSES:
        raise InvalidArgument(f"status must be one of {', '.join(STATUSES)}, got {status!r}")
