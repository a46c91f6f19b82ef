"""The spans of a transaction's writes.

They begin before the writes, because their contexts are stored, and end after the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from queuert.ports.program import Program, atomically
from queuert.ports.tracer import Blocker, Creation, Tracer
from queuert.records.model import BlockerRow, ChainRow, Created, JobRow, NewJob, Settlement

if TYPE_CHECKING:
    from queuert.ports.state import StateOperations

Events = list[Callable[[], None]]

_NONE: tuple[Creation | None, Sequence[Blocker]] = (None, ())


class Tracing:
    """Belongs to the observations of one transaction."""

    def __init__(self, tracer: Tracer, state: StateOperations) -> None:
        self._tracer = tracer
        self._state = state
        self._creations: dict[str, tuple[Creation, Sequence[Blocker]]] = {}
        """By job id, with the chains that the job waits for."""

    # Before the write

    def created(self, new_jobs: Sequence[NewJob]) -> Program[list[NewJob]]:
        """First jobs of chains, with the contexts that are to be stored with them."""
        contexts = yield from self._contexts_of_blockers(new_jobs)
        traced: list[NewJob] = []
        for new in new_jobs:
            job = self._begin(new, None, contexts)
            contexts[job.chain_id] = job.chain_trace_context  # a later one may wait for it
            traced.append(job)
        return traced

    def settled(self, items: Sequence[tuple[JobRow, Settlement]]) -> Program[list[tuple[JobRow, Settlement]]]:
        """Settlements, their continuations with the contexts that are to be stored with them."""
        continuations = [each.continuation for _, each in items if each.continuation is not None]
        contexts = yield from self._contexts_of_blockers(continuations)
        return [(row, self._continued(row, settlement, contexts)) for row, settlement in items]

    def _continued(self, row: JobRow, settlement: Settlement, contexts: dict[str, str | None]) -> Settlement:
        if settlement.continuation is None:
            return settlement
        return replace(settlement, continuation=self._begin(settlement.continuation, row.trace_context, contexts))

    def _contexts_of_blockers(self, new_jobs: Sequence[NewJob]) -> Program[dict[str, str | None]]:
        ids = list(dict.fromkeys(blocker.chain_id for new in new_jobs for blocker in new.blockers))
        rows = yield from self._state.get_jobs(ids)
        return {row.id: row.chain_trace_context for row in rows if row is not None}

    def _begin(self, new: NewJob, previous: str | None, contexts: dict[str, str | None]) -> NewJob:
        blockers = [Blocker(each.chain_id, each.chain_type, contexts.get(each.chain_id)) for each in new.blockers]
        creation: Creation | None = self._tracer.start_creation(
            job_id=new.id,
            job_type=new.type_name,
            chain_id=new.chain_id,
            chain_type=new.chain_type,
            chain_index=new.chain_index,
            chain_trace_context=new.chain_trace_context,
            previous_trace_context=previous,
            blockers=blockers,
        )
        if creation is None:  # pyright: ignore[reportUnnecessaryComparison]
            return new  # the tracer failed, and that was logged
        self._creations[new.id] = creation, blockers
        waits = zip(new.blockers, creation.blocker_trace_contexts, strict=True)
        return replace(
            new,
            trace_context=creation.trace_context,
            chain_trace_context=creation.chain_trace_context,
            blockers=tuple(replace(blocker, trace_context=context) for blocker, context in waits),
        )

    # After the commit

    def job_created(self, events: Events, new: NewJob, *, blocked: bool) -> None:
        creation, blockers = self._creations.pop(new.id, _NONE)
        if creation is None:
            return
        events.append(lambda: self._tracer.end_creation(creation))
        if not blocked:  # the others are resolved when the last of them completes
            for blocker, context in zip(blockers, creation.blocker_trace_contexts, strict=True):
                self._resolved(events, new.id, new.type_name, blocker, context)

    def deduplicated(self, events: Events, new: NewJob, made: Created) -> None:
        """The start found a chain, and stored nothing."""
        creation, _ = self._creations.pop(new.id, _NONE)
        context = None if made.existing is None else made.existing.first.chain_trace_context
        if creation is not None:
            events.append(
                lambda: self._tracer.end_deduplicated(
                    creation, chain_id=made.chain_id, chain_type=new.chain_type, trace_context=context
                )
            )

    def job_completed_by_hand(self, events: Events, row: JobRow, facts: dict[str, Any]) -> None:
        events.append(lambda: self._tracer.complete_job(**facts, trace_context=row.trace_context))

    def chain_ended(self, events: Events, row: JobRow, settlement: Settlement, error_code: str | None) -> None:
        events.append(
            lambda: self._tracer.end_chain(
                chain_id=row.chain_id,
                chain_type=row.chain_type,
                status=settlement.status,
                error_code=error_code,
                worker_id=settlement.worker,
                trace_context=row.chain_trace_context,
            )
        )

    def blockers(self, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
        """The blockers of jobs that have just become pending.

        Empty if the database cannot be read: tracing must not fail the caller.
        """
        try:
            return (yield from atomically(self._state.job_blockers(job_ids)))
        except Exception:
            return [[] for _ in job_ids]

    def blocker_resolved(
        self, events: Events, job_id: str, job_type: str, blocker: BlockerRow, ended: dict[str, str | None]
    ) -> None:
        chain = Blocker(blocker.chain_id, blocker.chain_type, ended.get(blocker.chain_id))
        self._resolved(events, job_id, job_type, chain, blocker.trace_context)

    def _resolved(self, events: Events, job_id: str, job_type: str, blocker: Blocker, context: str | None) -> None:
        events.append(
            lambda: self._tracer.resolve_blocker(
                job_id=job_id,
                job_type=job_type,
                blocker_id=blocker.chain_id,
                blocker_type=blocker.chain_type,
                trace_context=context,
                blocker_trace_context=blocker.trace_context,
            )
        )

    def chain_deleted(self, events: Events, chain: ChainRow) -> None:
        first = chain.first
        events.append(
            lambda: self._tracer.delete_chain(
                chain_id=first.id, chain_type=first.type_name, trace_context=first.chain_trace_context
            )
        )
