"""Cancelling chains, and those that wait for them."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.limiting import Limiting
from queuert.adapters.sqlite.operations.rows import Row
from queuert.adapters.sqlite.operations.settling import Settling
from queuert.base.statuses import OPEN
from queuert.ports.program import Program
from queuert.records.limits import split_lane
from queuert.records.model import Cancelled, JobRow, Settlement


class Cancelling(Limiting, Settling):
    def cancel_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Cancelled]:
        if not ids:
            return Cancelled([])
        return (yield from together(self._cancel(list(dict.fromkeys(ids)), cascade=cascade)))

    def _cancel(self, ids: Sequence[str], *, cascade: bool) -> Program[Cancelled]:
        """The answer has the chains that were named, then those of the cascade in id order."""
        name = "cancel_chains.cascade" if cascade else "cancel_chains.named"
        rows: list[Row] = yield self.statement(name, ids=array(ids))
        found = {row[0] for row in rows}
        missing = tuple(chain_id for chain_id in ids if chain_id not in found)
        if missing:
            return Cancelled([], missing=missing)
        before = yield from self.get_chains([*ids, *sorted(found.difference(ids))])
        jobs = [chain.current for chain in before if chain is not None]
        open_jobs = [job for job in jobs if job.status in OPEN]
        failed = yield from self._that_stop_lanes(jobs)
        changed = {job.chain_id for job in (*open_jobs, *failed)}
        if not changed:
            return Cancelled([])
        if open_jobs:
            yield from self.settle_all([Settlement(job_id=job.id, token=None, status="cancelled") for job in open_jobs])
        if failed:
            now = self.now()
            yield self.statement("cancel_chains.failed", ids=array([job.id for job in failed]), now=now)
            if self.statistics:
                yield from self.count((job.type_name, now, "cancelled", None, 1) for job in failed)
        after = yield from self.get_chains([job.chain_id for job in jobs if job.chain_id in changed])
        return Cancelled(
            [chain for chain in after if chain is not None],
            frozenset(job.id for job in open_jobs if job.status == "running"),
        )

    def _that_stop_lanes(self, jobs: Sequence[JobRow]) -> Program[list[JobRow]]:
        """Those that have failed and hold an ordered lane."""
        found: list[JobRow] = []
        for job in jobs:
            if job.status == "failed" and job.lane is not None:
                row = yield from self.get_limit(*split_lane(job.lane))
                if row.holder == job.id:
                    found.append(job)
        return found
