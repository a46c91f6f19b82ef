"""What one job type is looked up by: its jobs by status, and those that can be claimed in their order.

The heaps are cleaned lazily. An entry counts only while it says what the stored row says; an entry that has become
stale is dropped when it comes to the top. So changing a row never searches a heap, rolling a change back is just
another push, and the rows alone are the truth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from heapq import heapify, heappop, heappush
from itertools import chain

from queuert.model import JobRow

Entry = tuple[int, datetime, str]
"""Priority, scheduled time, job id: the order of claims within a queue."""

SLACK = 64
"""Stale entries that are never worth a clean-up."""


class TypeIndex:
    __slots__ = ("blocked", "due", "failed", "pending", "ready", "rows", "running")

    def __init__(self, rows: Mapping[str, JobRow]) -> None:
        self.rows = rows
        self.blocked: set[str] = set()
        self.pending: set[str] = set()
        self.running: set[str] = set()
        self.failed: set[str] = set()
        self.ready: list[Entry] = []
        self.due: list[tuple[datetime, int, str]] = []

    def add(self, row: JobRow, now: datetime) -> None:
        """Take up a row that is stored already. Jobs that have ended otherwise than by failure are in no index."""
        status = row.status
        if status == "pending":
            self.pending.add(row.id)
            if row.scheduled_at <= now:
                heappush(self.ready, (row.priority, row.scheduled_at, row.id))
            else:
                heappush(self.due, (row.scheduled_at, row.priority, row.id))
        elif status == "running":
            self.running.add(row.id)
        elif status == "blocked":
            self.blocked.add(row.id)
        elif status == "failed":
            self.failed.add(row.id)

    def discard(self, row: JobRow) -> None:
        """Forget a row as it was."""
        status = row.status
        if status == "pending":
            self.pending.discard(row.id)
            if len(self.ready) + len(self.due) > 2 * len(self.pending) + SLACK:
                self._rebuild()
        elif status == "running":
            self.running.discard(row.id)
        elif status == "blocked":
            self.blocked.discard(row.id)
        elif status == "failed":
            self.failed.discard(row.id)

    def head(self, now: datetime) -> Entry | None:
        """The first job that can be claimed now, by its entry."""
        due = self.due
        while due and due[0][0] <= now:
            at, priority, job_id = heappop(due)
            heappush(self.ready, (priority, at, job_id))
        ready = self.ready
        while ready:
            entry = ready[0]
            if not self._says_truth(*entry):
                heappop(ready)
            elif entry[1] > now:  # the clock went back
                heappop(ready)
                heappush(due, (entry[1], entry[0], entry[2]))
            else:
                return entry
        return None

    def leads(self, entry: Entry) -> bool:
        """Whether what `head` has answered is still the first."""
        return bool(self.ready) and self.ready[0] is entry

    def next_due(self, now: datetime) -> datetime | None:
        """When the first pending job can be claimed (a moment that is not later than now: at once)."""
        entry = self.head(now)
        return self.next_later(now) if entry is None else entry[1]

    def next_later(self, now: datetime) -> datetime | None:
        """When the first of the pending jobs that are not due yet can be claimed."""
        self.head(now)
        due = self.due
        while due:
            at, priority, job_id = due[0]
            if self._says_truth(priority, at, job_id):
                return at
            heappop(due)
        return None

    def open_or_failed(self) -> Iterator[str]:
        return chain(self.blocked, self.pending, self.running, self.failed)

    def _says_truth(self, priority: int, at: datetime, job_id: str) -> bool:
        if job_id not in self.pending:
            return False
        row = self.rows[job_id]
        return row.scheduled_at == at and row.priority == priority

    def _rebuild(self) -> None:
        # Which entries are ready is found out by the next head(): a clock is not at hand here.
        self.ready.clear()
        self.due = [(self.rows[key].scheduled_at, self.rows[key].priority, key) for key in self.pending]
        heapify(self.due)
