"""Which job the running code belongs to: set in the task of each handler, and seen in its threads and tasks."""

from __future__ import annotations

from contextvars import ContextVar

from queuert.model import JobRow

current_job: ContextVar[JobRow | None] = ContextVar("queuert_current_job", default=None)
