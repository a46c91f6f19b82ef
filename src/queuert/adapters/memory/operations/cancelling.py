"""Cancelling chains, and those that wait for them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from queuert.adapters.memory.command import write
from queuert.adapters.memory.lanes import holder_of, rule_of
from queuert.adapters.memory.operations.settling import settle_job
from queuert.adapters.memory.tables import Tables
from queuert.base.statuses import OPEN
from queuert.records.model import Cancelled, JobRow, Settlement


class Cancelling:
    @write
    def cancel_chains(self, tables: Tables, ids: Sequence[str], *, cascade: bool) -> Cancelled:
        """The answer has the chains that were named, then those of the cascade in id order."""
        chosen = list(dict.fromkeys(ids))
        missing = tuple(chain_id for chain_id in chosen if tables.chain(chain_id) is None)
        if missing:
            return Cancelled([], missing=missing)
        if cascade:
            chosen += sorted(_waiting_above(tables, chosen))
        current = [tables.chain_jobs(chain_id)[-1] for chain_id in chosen]
        ours = [row for row in current if row.status in OPEN or _stops_lane(tables, row)]
        for row in ours:
            if row.status in OPEN:
                settle_job(tables, Settlement(job_id=row.id, token=None, status="cancelled"))
            else:
                tables.happened(row, "cancelled", None)
                tables.put(replace(row, status="cancelled", completed_at=tables.now, completed_by=None))
        return Cancelled(
            [chain for row in ours if (chain := tables.chain(row.chain_id)) is not None],
            frozenset(row.id for row in ours if row.status == "running"),
        )


def _stops_lane(tables: Tables, row: JobRow) -> bool:
    """Whether it has failed and holds an ordered lane."""
    if row.status != "failed" or row.lane is None or not rule_of(tables, row.lane).ordered:
        return False
    holder = holder_of(tables, row.lane)
    return holder is not None and holder.id == row.id


def _waiting_above(tables: Tables, chain_ids: Sequence[str]) -> set[str]:
    """The chains that wait for these, the chains that wait for those, and so on, without these."""
    seen, to_visit = set(chain_ids), list(chain_ids)
    while to_visit:
        dependents = (tables.jobs[job_id] for job_id in tables.dependents(to_visit.pop()))
        above = {row.chain_id for row in dependents if row.status == "blocked"} - seen
        seen |= above
        to_visit += above
    return seen - set(chain_ids)
