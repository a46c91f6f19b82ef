"""What reads see: a view answers a few questions about the data, and everything else is built from those.

`Tables` is the live view, uncommitted changes of the open transaction included. `CommittedView` looks past them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from queuert.model import BlockerRef, BlockerRow, ChainRow, JobRow


class View(ABC):
    __slots__ = ()

    @abstractmethod
    def job(self, job_id: str) -> JobRow | None: ...

    @abstractmethod
    def ids(self) -> Sequence[str]:
        """The ids of all jobs, in order."""

    @abstractmethod
    def current(self, chain_id: str) -> JobRow | None:
        """The last job of a chain; None if there is no such chain."""

    @abstractmethod
    def chain_jobs(self, chain_id: str) -> Iterator[JobRow]:
        """The jobs of a chain in their order."""

    @abstractmethod
    def edges(self, job_id: str) -> tuple[BlockerRef, ...]:
        """The chains that a job waits (or waited) for."""

    @abstractmethod
    def dependents(self, chain_id: str) -> Iterable[str]:
        """The ids of the jobs that have a chain as a blocker, in no order."""

    @abstractmethod
    def open_or_failed(self) -> Iterator[JobRow]:
        """The jobs that may need somebody's attention, in no order."""

    @abstractmethod
    def next_due(self, type_name: str, now: datetime) -> datetime | None:
        """When the first pending job of a type can be claimed; a moment that is not after now if one can be now."""

    def chain(self, chain_id: str) -> ChainRow | None:
        current = self.current(chain_id)
        if current is None:
            return None
        first = current if current.id == chain_id else self.job(chain_id)
        return None if first is None else ChainRow(first, current)

    def blockers(self, job_id: str) -> tuple[BlockerRow, ...]:
        edges = self.edges(job_id)
        return tuple(self._blocker(edge) for edge in edges) if edges else ()

    def _blocker(self, edge: BlockerRef) -> BlockerRow:
        current = self.current(edge.chain_id)
        assert current is not None, "deleting a chain deletes its edges"
        return BlockerRow(edge.chain_id, edge.chain_type, current.status, current.output, edge.trace_context)
