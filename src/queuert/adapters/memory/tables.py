"""The data itself: three tables, what is derived from them, and the journal that undoes changes.

Tables: rows (job id → row), edges (job id → its blockers), keys (deduplication key → chain id). Their values are
immutable, and every change goes through one method per table, which also brings the derived structures in line. So
undoing is setting the earlier value by the same method, and no index can come out of a rollback different.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import count
from typing import Any, Literal

from queuert.adapters.memory.index import TypeIndex
from queuert.adapters.memory.view import View
from queuert.model import BlockerRef, JobRow

DedupKey = tuple[str, str]
"""Chain type and key."""

Table = Literal["rows", "edges", "keys"]


class Tables(View):
    __slots__ = (
        "_current",
        "_dependents",
        "_edges",
        "_keys",
        "_links",
        "_sorted_ids",
        "log",
        "now",
        "rows",
        "running",
        "tokens",
        "types",
    )

    def __init__(self, now: datetime) -> None:
        self.now = now
        """The time of the command that is being carried out."""
        self.log: list[tuple[Table, Any, Any]] = []
        """What the open transaction has changed: table, key, value before. Oldest first."""
        self.tokens = count(1)
        """Not part of the journal: a token never comes back, not even after a rollback."""
        self.rows: dict[str, JobRow] = {}
        self._edges: dict[str, tuple[BlockerRef, ...]] = {}
        self._keys: dict[DedupKey, str] = {}

        # Derived.
        self.types: dict[str, TypeIndex] = {}
        self.running = 0
        self._sorted_ids: list[str] | None = []
        self._dependents: dict[str, dict[str, None]] = {}
        # Only chains with more than one job are in these two: chain → last job, (chain, index) → job.
        self._current: dict[str, str] = {}
        self._links: dict[tuple[str, int], str] = {}

    # Reading

    def job(self, job_id: str) -> JobRow | None:
        return self.rows.get(job_id)

    def ids(self) -> Sequence[str]:
        if self._sorted_ids is None:
            self._sorted_ids = sorted(self.rows)
        return self._sorted_ids

    def current(self, chain_id: str) -> JobRow | None:
        return self.rows.get(self._current.get(chain_id, chain_id))

    def chain_jobs(self, chain_id: str) -> Iterator[JobRow]:
        current = self.current(chain_id)
        if current is None:
            return
        yield self.rows[chain_id]
        for index in range(1, current.chain_index + 1):
            yield self.rows[self._links[chain_id, index]]

    def previous(self, row: JobRow) -> JobRow:
        """The job that continued with this one."""
        index = row.chain_index - 1
        return self.rows[self._links[row.chain_id, index] if index else row.chain_id]

    def edges(self, job_id: str) -> tuple[BlockerRef, ...]:
        return self._edges.get(job_id, ())

    def dependents(self, chain_id: str) -> Sequence[str]:
        return list(self._dependents.get(chain_id, ()))

    def open_or_failed(self) -> Iterator[JobRow]:
        for index in self.types.values():
            for job_id in index.open_or_failed():
                yield self.rows[job_id]

    def next_due(self, type_name: str, now: datetime) -> datetime | None:
        index = self.types.get(type_name)
        return None if index is None else index.next_due(now)

    def key(self, key: DedupKey) -> str | None:
        return self._keys.get(key)

    # Writing

    def put(self, row: JobRow) -> None:
        job_id = row.id
        old = self.rows.get(job_id)
        self.log.append(("rows", job_id, old))
        self._set_row(job_id, old, row)

    def remove(self, job_id: str) -> None:
        old = self.rows.get(job_id)
        self.log.append(("rows", job_id, old))
        self._set_row(job_id, old, None)

    def put_edges(self, job_id: str, edges: tuple[BlockerRef, ...]) -> None:
        self.log.append(("edges", job_id, self._edges.get(job_id)))
        self._set_edges(job_id, edges)

    def put_key(self, key: DedupKey, chain_id: str | None) -> None:
        self.log.append(("keys", key, self._keys.get(key)))
        self._set_key(key, chain_id)

    # The journal

    def undo(self, mark: int) -> None:
        """Take back every change since the log had `mark` entries."""
        log = self.log
        while len(log) > mark:
            table, key, value = log[-1]
            if table == "rows":
                self._set_row(key, self.rows.get(key), value)
            elif table == "edges":
                self._set_edges(key, value or ())
            else:
                self._set_key(key, value)
            log.pop()

    # One method per table that changes it, and all that is derived from it

    def _set_row(self, job_id: str, old: JobRow | None, new: JobRow | None) -> None:
        if new is None:
            if old is not None:
                self._unlink(old)
        else:
            self.rows[job_id] = new
            if old is None:
                self._link(new)
        if old is not None:
            self.types[old.type_name].discard(old)
            if old.status == "running":
                self.running -= 1
        if new is not None:
            index = self.types.get(new.type_name)
            if index is None:
                index = self.types[new.type_name] = TypeIndex(self.rows)
            index.add(new, self.now)
            if new.status == "running":
                self.running += 1

    def _link(self, row: JobRow) -> None:
        """Take up a row that was not there before."""
        ids = self._sorted_ids
        if ids is not None:
            if not ids or ids[-1] < row.id:
                ids.append(row.id)
            else:
                self._sorted_ids = None
        if row.chain_index:
            self._links[row.chain_id, row.chain_index] = row.id
            last = self._current.get(row.chain_id)
            if last is None or self.rows[last].chain_index < row.chain_index:
                self._current[row.chain_id] = row.id

    def _unlink(self, row: JobRow) -> None:
        """Let go of a row."""
        del self.rows[row.id]
        ids = self._sorted_ids
        if ids is not None:
            if ids and ids[-1] == row.id:
                ids.pop()
            else:
                self._sorted_ids = None
        if row.chain_index:
            del self._links[row.chain_id, row.chain_index]
            if self._current[row.chain_id] == row.id:
                self._step_back(row.chain_id, row.chain_index - 1)

    def _step_back(self, chain_id: str, index: int) -> None:
        # Undoing a deletion passes through states with gaps, hence the search.
        while index and (chain_id, index) not in self._links:
            index -= 1
        if index:
            self._current[chain_id] = self._links[chain_id, index]
        else:
            del self._current[chain_id]

    def _set_edges(self, job_id: str, edges: tuple[BlockerRef, ...]) -> None:
        for edge in self._edges.pop(job_id, ()):
            waiting = self._dependents[edge.chain_id]
            del waiting[job_id]
            if not waiting:
                del self._dependents[edge.chain_id]
        if edges:
            self._edges[job_id] = edges
            for edge in edges:
                self._dependents.setdefault(edge.chain_id, {})[job_id] = None

    def _set_key(self, key: DedupKey, chain_id: str | None) -> None:
        if chain_id is None:
            self._keys.pop(key, None)
        else:
            self._keys[key] = chain_id
