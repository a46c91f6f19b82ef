"""Queries by id, and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.adapters.postgres.operations.base import BaseOperations, distinct
from queuert.adapters.postgres.rows import Row, blocker_of, chain_of
from queuert.adapters.sql.circumstances import pause_rows
from queuert.base.ids import is_uuid
from queuert.ports.program import Program
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.model import Available, BlockerRow, ChainRow, JobRow, TypeStats, at_most


class Reading(BaseOperations):
    def get_jobs(self, ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return self.jobs_by_id("read.jobs", ids)

    def get_chains(self, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow | None]]:
        asked = distinct(ids)
        if not asked:
            return [None] * len(ids)
        name = "read.chains_locked" if lock else "read.chains"
        rows: list[Row] = yield self.statement(name, ids=asked)
        found = {row[0]: chain_of(row) for row in rows}
        return [found.get(chain_id) for chain_id in ids]

    def job_blockers(self, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
        asked = distinct(job_ids)
        rows: list[Row] = (yield self.statement("read.blockers", ids=asked)) if asked else []
        found: dict[str, list[BlockerRow]] = {}
        for row in rows:
            found.setdefault(row[0], []).append(blocker_of(row[1:]))
        return [list(found.get(job_id, ())) for job_id in job_ids]

    def failed_attempts(self, job_id: str) -> Program[list[FailedAttempt]]:
        if not is_uuid(job_id):
            return []
        rows: list[Row] = yield self.statement("read.attempts", job=job_id)
        return [FailedAttempt(*row) for row in rows]

    def next_available_in(self, types: Sequence[str], queues: Sequence[str] = ()) -> Program[Available]:
        if not types:
            return Available(None)
        rows: list[Row] = yield self.statement(
            "read.next_available_in", types=list(types), queues=list(queues) or [None] * len(types)
        )
        next_in, paused, unblocking = rows[0]
        return Available(next_in, unblocking, tuple(pause_rows(paused)))

    def stats(self, *, limit: int | None = None) -> Program[list[TypeStats]]:
        rows: list[Row] = yield self.statement("read.stats", limit=limit)
        counts: dict[str, dict[str, Any]] = {}
        oldest: dict[str, float] = {}
        for name, status, number, age in rows:
            of_type = counts.setdefault(name, {})
            for each in (status, "pending") if status == "limited" else (status,):
                of_type[each] = at_most(limit, of_type.get(each, 0) + number)
            if age is not None:
                oldest[name] = max(age, oldest.get(name, age))
        return [
            TypeStats(name, oldest_ready_age=oldest.get(name), **of_type)
            for name, of_type in sorted(counts.items())
            if any(of_type.values())
        ]
