"""The tracer port: spans, whose contexts are stored with the jobs.

An observer that traces has a `tracer`. If several observers have one, the first is used. A span
that begins before a write ends after the commit. After a rollback it is dropped and never reported.
Contexts are opaque strings (W3C `traceparent`). They are stored with job, blocker and chain, and
passed back to these methods.
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
    """The spans of a new job, and the contexts to store with it, its chain and each of its
    blockers.
    """

    spans: Any
    trace_context: str | None
    chain_trace_context: str | None
    blocker_trace_contexts: Sequence[str | None]


class Tracer(Protocol):
    """Makes the spans. All methods are called by keyword, and must not block."""

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
        """A job is about to be stored; with `chain_index` 0, its chain too.

        `previous_trace_context`: the context of the job that it continues.
        """
        ...

    def end_creation(self, creation: Creation) -> None:
        """The job was stored, and the transaction has committed."""
        ...

    def end_deduplicated(
        self, creation: Creation, *, chain_id: str, chain_type: str, trace_context: str | None
    ) -> None:
        """The start found this chain under its deduplication key: no job was stored, and no chain.
        The transaction has committed. `trace_context`: what was stored with the chain.
        """
        ...

    def start_attempt(
        self,
        *,
        job_id: str,
        job_type: str,
        chain_id: str,
        chain_type: str,
        attempt_number: int,
        worker_id: str,
        trace_context: str | None,
    ) -> Any:
        """A handler begins. Called in the handler's own task: a span made current here is current
        in the handler.
        """
        ...

    def end_attempt(self, span: Any, *, outcome: str, error_code: str | None, error_type: str | None) -> None:
        """An attempt has ended.

        `outcome`: completed, failed, rescheduled, or why the job was lost.
        """
        ...

    def start_phase(self, *, phase: str) -> Any:
        """`prepare` or `complete` begins, in the handler's task or thread."""
        ...

    def end_phase(self, span: Any, *, error_type: str | None) -> None:
        """The phase has ended; with an `error_type`, its transaction was rolled back."""
        ...

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
        worker_id: str | None,
        trace_context: str | None,
    ) -> None:
        """A chain has ended. `worker` is None if no worker ended it."""
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
        """The last blocker of a job has completed. Called once for each of its blockers, also if
        all of them had completed before the job was stored.

        `trace_context`: what was stored when the job began to wait for this blocker.
        """
        ...

    def delete_chain(self, *, chain_id: str, chain_type: str, trace_context: str | None) -> None:
        """A chain was deleted."""
        ...
