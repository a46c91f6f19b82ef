"""The tracer port: spans, whose contexts are stored with the jobs.

An observer that traces has one as its `tracer`; if several do, the first one is used. A span that has begun before a
write is ended after the commit; after a rollback it is dropped, and nobody hears of it. Contexts are opaque strings
(W3C's `traceparent`), stored with job, blocker and chain, and handed back here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol


class Blocker(NamedTuple):
    """A chain that a new job waits for, and the context that was stored with that chain."""

    chain_id: str
    chain_type: str
    trace_context: str | None


class Creation(NamedTuple):
    """The spans of a new job, and the contexts to be stored with it, with its chain and with each of its blockers."""

    spans: Any
    trace_context: str | None
    chain_trace_context: str | None
    blocker_trace_contexts: Sequence[str | None]


class Tracer(Protocol):
    def start_creation(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        chain_index: int,
        chain_trace_context: str | None,
        previous_trace_context: str | None,
        blockers: Sequence[Blocker],
    ) -> Creation:
        """A job, and with `chain_index` 0 its chain, is about to be stored. `previous…`: the job that it continues."""
        ...

    def end_creation(self, creation: Creation) -> None:
        """It was stored, and that is committed."""
        ...

    def start_attempt(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt: int,
        worker: str,
        trace_context: str | None,
    ) -> Any:
        """Called in the handler's own task: what is made current here surrounds the handler."""
        ...

    def end_attempt(self, span: Any, *, outcome: str, error_code: str | None, error_type: str | None) -> None:
        """`outcome`: completed, failed, rescheduled, or why the job was lost."""
        ...

    def start_phase(self, *, phase: str) -> Any:
        """`prepare` or `complete` begins, in the handler's task or thread."""
        ...

    def end_phase(self, span: Any, *, error_type: str | None) -> None: ...

    def complete_job(
        self, *, job_id: str, job_type: str, chain_id: str, chain_type: str, trace_context: str | None
    ) -> None:
        """A job was completed without a worker."""
        ...

    def end_chain(
        self,
        *,
        chain_id: str,
        chain_type: str,
        status: str,
        error_code: str | None,
        worker: str | None,
        trace_context: str | None,
    ) -> None:
        """A chain has ended; `worker` is None if no worker did that."""
        ...

    def resolve_blocker(
        self,
        *,
        job_id: str,
        job_type: str,
        blocker_id: str,
        blocker_type: str,
        trace_context: str | None,
        blocker_trace_context: str | None,
    ) -> None:
        """A job has all its blockers; this is one of them. `trace_context`: what was stored when the wait began."""
        ...

    def delete_chain(self, *, chain_id: str, chain_type: str, trace_context: str | None) -> None:
        """A chain was deleted."""
        ...
