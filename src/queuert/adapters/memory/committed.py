"""The data as it was before the open transaction began, for reads that are not part of it.

Built from the journal, whose size decides the cost; nothing of the data is copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from queuert.adapters.memory.tables import Tables
from queuert.adapters.memory.view import View
from queuert.model import BlockerRef, JobRow


class CommittedView(View):
    __slots__ = ("_edges", "_live", "_rows")

    def __init__(self, live: Tables) -> None:
        self._live = live
        self._rows: dict[str, JobRow | None] = {}
        self._edges: dict[str, tuple[BlockerRef, ...] | None] = {}
        for table, key, before in reversed(live.log):  # the oldest value of a key is set last, and stays
            if table == "rows":
                self._rows[key] = before
            elif table == "edges":
                self._edges[key] = before

    def job(self, job_id: str) -> JobRow | None:
        return self._rows[job_id] if job_id in self._rows else self._live.job(job_id)

    def ids(self) -> Sequence[str]:
        present = self._live.rows.keys() - self._rows.keys()
        return sorted(present.union(row.id for row in self._changed_rows()))

    def current(self, chain_id: str) -> JobRow | None:
        row = self._live.current(chain_id)
        while row is not None:  # back over the jobs that the transaction has added
            before = self.job(row.id)
            if before is not None and before.chain_id == chain_id and before.continued_to is None:
                return before
            row = self._live.previous(row) if row.chain_index else None
        deleted = list(self.chain_jobs(chain_id))
        return deleted[-1] if deleted else None

    def chain_jobs(self, chain_id: str) -> Iterator[JobRow]:
        row = self.job(chain_id)
        while row is not None:
            yield row
            row = None if row.continued_to is None else self.job(row.continued_to)

    def edges(self, job_id: str) -> tuple[BlockerRef, ...]:
        if job_id in self._edges:
            return self._edges[job_id] or ()
        return self._live.edges(job_id)

    def dependents(self, chain_id: str) -> Iterable[str]:
        candidates = {*self._live.dependents(chain_id), *self._edges}
        return [job_id for job_id in candidates if any(edge.chain_id == chain_id for edge in self.edges(job_id))]

    def open_or_failed(self) -> Iterator[JobRow]:
        for row in self._live.open_or_failed():
            if row.id not in self._rows:
                yield row
        for row in self._changed_rows():
            if row.status in ("blocked", "pending", "running", "failed"):
                yield row

    def next_due(self, type_name: str, now: datetime) -> datetime | None:  # noqa: ARG002
        index = self._live.types.get(type_name)
        untouched = () if index is None else index.pending - self._rows.keys()
        moments = [self._live.rows[job_id].scheduled_at for job_id in untouched]
        moments += [
            row.scheduled_at for row in self._changed_rows() if row.status == "pending" and row.type_name == type_name
        ]
        return min(moments, default=None)

    def _changed_rows(self) -> Iterator[JobRow]:
        """The rows that the open transaction has changed or deleted, as they were."""
        return (row for row in self._rows.values() if row is not None)
