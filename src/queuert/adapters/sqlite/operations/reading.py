"""Queries by id, and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.pausing import Pausing
from queuert.adapters.sqlite.operations.rows import Row, attempt_of, blocker_of, chain_of, job_of, moment
from queuert.ports.program import Program
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.model import Available, BlockerRow, ChainRow, JobRow, TypeStats, at_most
from queuert.records.pauses import Pause, in_the_way, is_paused, lanes_of, sooner

T = TypeVar("T")

_NEVER = 2**63 - 1


class Reading(Pausing):
    def get_jobs(self, ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return self._by_id("read.jobs", ids, job_of)

    def get_chains(self, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow | None]]:  # noqa: ARG002
        return self._by_id("read.chains", ids, chain_of)

    def _by_id(
        self, name: str, ids: Sequence[str], make: Callable[[Row], T], **parameters: Any
    ) -> Program[list[T | None]]:
        """One result for each id, in their order. Each row begins with its id."""
        if not ids:
            return []
        rows: list[Row] = yield self.statement(name, ids=array(list(dict.fromkeys(ids))), **parameters)
        found = {row[0]: make(row) for row in rows}
        return [found.get(each) for each in ids]

    def failed_attempts(self, job_id: str) -> Program[list[FailedAttempt]]:
        rows: list[Row] = yield self.statement("attempts.of_job", job=job_id)
        return [attempt_of(row) for row in rows]

    def next_available_in(self, types: Sequence[str], queues: Sequence[str] = ()) -> Program[Available]:
        if not types:
            return Available(None)
        paused: tuple[Pause, ...] = ()
        due, unblocking, pauses = yield from self._earliest(types)
        if pauses:
            lanes = lanes_of(types, queues)
            paused = in_the_way((yield from self.list_pauses()), lanes)
            free = [name for name, queue in lanes if not is_paused(paused, name, queue)]
            due = (yield from self._earliest(free))[0] if free else _NEVER
        next_in = None if due == _NEVER else max(0, due - self.now()) / 1_000_000
        return Available(sooner(next_in, paused, moment(self.now())), bool(unblocking), paused)

    def _earliest(self, types: Sequence[str]) -> Program[tuple[int, int, int]]:
        rows: list[tuple[int, int, int]] = yield self.statement("next_available_in.earliest", types=array(types))
        return rows[0]

    def job_blockers(self, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
        if not job_ids:
            return []
        rows: list[Row] = yield self.statement("read.blockers", ids=array(list(dict.fromkeys(job_ids))))
        if not rows:
            return [[] for _ in job_ids]
        found: dict[str, list[BlockerRow]] = {}
        for row in rows:
            found.setdefault(row[0], []).append(blocker_of(row))
        return [list(found.get(job_id, ())) for job_id in job_ids]

    def stats(self, *, limit: int | None = None) -> Program[list[TypeStats]]:
        rows: list[Row] = yield self.statement("stats.counts", limit=-1 if limit is None else limit)
        now = self.now()
        counts: dict[str, dict[str, Any]] = {}
        oldest: dict[str, int] = {}
        for name, status, number, scheduled_at in rows:
            of_type = counts.setdefault(name, {})
            for each in (status, "pending") if status == "limited" else (status,):
                of_type[each] = at_most(limit, of_type.get(each, 0) + number)
            if scheduled_at is not None and scheduled_at <= now:
                oldest[name] = min(scheduled_at, oldest.get(name, now))
        return [
            TypeStats(name, **of_type, oldest_ready_age=(now - oldest[name]) / 1_000_000 if name in oldest else None)
            for name, of_type in sorted(counts.items())
            if any(of_type.values())
        ]
