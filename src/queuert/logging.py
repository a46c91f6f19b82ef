"""Logs: events as records of Python's `logging`, and the current job in a handler's own records."""

from queuert.features.observing.logging import EventLog, JobContext, add_job_context, job_context

__all__ = ["EventLog", "JobContext", "add_job_context", "job_context"]
