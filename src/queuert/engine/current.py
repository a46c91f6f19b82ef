"""The job that the running code belongs to. Set in the task of each handler, and visible in the
threads and tasks that the handler starts.
"""

from __future__ import annotations

from contextvars import ContextVar

from queuert.records.model import JobRow

current_job: ContextVar[JobRow | None] = ContextVar("queuert_current_job", default=None)
