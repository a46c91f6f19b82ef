"""How jobs end, are continued or are put back, and how the end of a chain frees its dependents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from queuert.adapters.memory.command import write
from queuert.adapters.memory.lanes import close
from queuert.adapters.memory.operations.claiming import untouched
from queuert.adapters.memory.operations.creating import create_job
from queuert.adapters.memory.operations.deleting import delete_chain
from queuert.adapters.memory.tables import Tables
from queuert.base.statuses import REPAIRABLE, TERMINAL
from queuert.errors import InvalidArgument
from queuert.records.history import settled_as
from queuert.records.model import UNBLOCKED_AT_ONCE, Freed, JobRow, Settled, Settlement, Unblocked, When


class Settling:
    unblocked_at_once = UNBLOCKED_AT_ONCE

    @write
    def settle(self, tables: Tables, settlements: Sequence[Settlement]) -> Settled:
        """In three steps, each for the whole batch: end the jobs, free dependents, store
        continuations.

        So a continuation does not wait for a chain that completes in the same batch.
        """
        applied = [settle_job(tables, each) for each in settlements]
        settled = [each if took_effect else None for each, took_effect in zip(settlements, applied, strict=True)]
        completed = {
            tables.jobs[each.job_id].chain_id: each.token
            for each in settled
            if each is not None and each.status == "completed" and each.continuation is None
        }
        edges = _edges_to_free(tables, completed, self.unblocked_at_once)
        unblocked = count_down(tables, edges)
        created = [
            None if each is None or each.continuation is None else create_job(tables, each.continuation)
            for each in settled
        ]
        more = not tables.unblocking.keys().isdisjoint(completed)
        for each in settled:
            if each is not None and each.discard and each.status == "completed" and each.continuation is None:
                _discard(tables, tables.jobs[each.job_id].chain_id)
        return Settled(applied, created, unblocked, more=more)

    @write
    def continue_unblocking(self, tables: Tables, limit: int) -> Freed:
        chain_id = min(tables.unblocking, default=None)
        if chain_id is None:
            return Freed([])
        jobs = tables.unblocking.pop(chain_id)
        if len(jobs) > limit:
            tables.unblocking[chain_id] = jobs[limit:]
        return Freed(count_down(tables, jobs[:limit]), more=bool(tables.unblocking), chain_id=chain_id)

    @write
    def trigger(self, tables: Tables, job_ids: Sequence[str]) -> list[JobRow | None]:
        """A job that is due already keeps its time, and so its place in the order of claims."""
        rows: list[JobRow | None] = []
        for job_id in job_ids:
            row = tables.jobs.get(job_id)
            if row is not None and row.status == "pending" and row.scheduled_at > tables.now:
                tables.put(replace(row, scheduled_at=tables.now))
            rows.append(tables.jobs[job_id] if row is not None and row.status == "pending" else None)
        return rows

    @write
    def retry(self, tables: Tables, job_ids: Sequence[str]) -> list[JobRow | None]:
        """A job that is named twice is returned twice, although it is no longer failed the second
        time.
        """
        retried: dict[str, JobRow] = {}
        for job_id in job_ids:
            row = tables.jobs.get(job_id)
            if row is not None and row.status == "failed":
                retried[job_id] = replace(
                    row,
                    status="pending",
                    attempt=0,
                    losses=0,
                    scheduled_at=tables.now,
                    completed_at=None,
                    completed_by=None,
                )
                tables.put(retried[job_id])
                tables.happened(row, "retried", None)
        return [retried.get(job_id) for job_id in job_ids]

    @write
    def set_priority(self, tables: Tables, job_ids: Sequence[str], priority: int) -> list[JobRow | None]:
        changed: dict[str, JobRow] = {}
        for job_id in job_ids:
            row = tables.jobs.get(job_id)
            if row is not None and row.status in ("blocked", "pending"):
                changed[job_id] = replace(row, priority=priority)
                tables.put(changed[job_id])
        return [changed.get(job_id) for job_id in job_ids]

    @write
    def repair(
        self,
        tables: Tables,
        job_id: str,
        input: bytes,
        deadline: When | None,
        lane: str | None,
        weight: float | None,
    ) -> JobRow | None:
        row = tables.jobs.get(job_id)
        if row is None or row.status not in REPAIRABLE:
            return None
        tables.happened(row, "retried", None)
        tables.put_weighted(
            replace(
                row,
                input=input,
                lane=lane,
                status="pending",
                attempt=0,
                losses=0,
                scheduled_at=tables.now,
                completed_at=None,
                completed_by=None,
                deadline=_still_ahead(tables, row.deadline) if deadline is None else tables.moment(deadline),
            ),
            weight,
        )
        return tables.jobs[job_id]


def _discard(tables: Tables, chain_id: str) -> None:
    """Delete a chain that has just been completed, unless a job or a key may still ask for it."""
    if tables.jobs[chain_id].dedup_key is None and not tables.dependents(chain_id):
        delete_chain(tables, chain_id)


def _still_ahead(tables: Tables, deadline: datetime | None) -> datetime | None:
    return None if deadline is None or deadline <= tables.now else deadline


def settle_job(tables: Tables, settlement: Settlement) -> bool:
    """Whether it takes effect: its token is the job's, or it has none and the job has not ended."""
    row = tables.jobs.get(settlement.job_id)
    if settlement.token is None:
        if settlement.status == "pending":
            raise InvalidArgument(f"job {settlement.job_id} can only be put back with the token of its claim")
        if row is None or row.status in TERMINAL:
            return False
    elif row is None or row.token != settlement.token:
        return False
    if not settlement.give_back:
        since = row.last_attempt_at if row.status == "running" else None
        tables.happened(row, settled_as(settlement.status), since)
    if settlement.give_back:
        if settlement.closes is not None and row.lane is not None:
            close(tables, row.lane, tables.after(settlement.closes))
        row = untouched(tables, row)
    elif settlement.fails_attempt and settlement.error is not None and row.status == "running":
        tables.note_attempt(row, "failed", settlement.error)
    row = replace(row, status=settlement.status, leased_by=None, leased_until=None, token=None)
    tables.put(_put_back(tables, row, settlement) if settlement.status == "pending" else _end(tables, row, settlement))
    return True


def _put_back(tables: Tables, row: JobRow, settlement: Settlement) -> JobRow:
    """With `give_back` the job is as before the claim; `uncounted`, only its attempt number is."""
    if settlement.give_back:
        return row
    error = row.last_error if settlement.error is None else settlement.error
    attempt = row.attempt - settlement.uncounted
    return replace(row, attempt=attempt, scheduled_at=tables.due(settlement.schedule), last_error=error)


def _end(tables: Tables, row: JobRow, settlement: Settlement) -> JobRow:
    row = replace(row, completed_at=tables.now, completed_by=settlement.worker)
    if settlement.status == "completed":
        following = settlement.continuation
        continued_to = None if following is None else following.id
        return replace(row, output=settlement.output, continued_to=continued_to, last_error=None)
    return row if settlement.error is None else replace(row, last_error=settlement.error)


def _edges_to_free(tables: Tables, completed: Mapping[str, int | None], limit: int) -> list[str]:
    """The jobs to count down now, once for each chain that they wait for.

    By hand (without a token), a chain frees all jobs that wait for it. The others free a limited
    number together, and remember those that are left.
    """
    dependents: dict[str, list[str]] = {chain_id: [] for chain_id in completed}
    for job_id, blockers in sorted(tables.blockers.items()):
        for each in blockers:
            if each.chain_id in dependents:
                dependents[each.chain_id].append(job_id)
    edges: list[str] = []
    for chain_id, token in sorted(completed.items()):
        jobs = dependents[chain_id]
        number = len(jobs) if token is None else limit
        edges += jobs[:number]
        if token is not None:
            limit -= min(limit, len(jobs))
        if len(jobs) > number:
            tables.unblocking[chain_id] = tuple(jobs[number:])
    return edges


def count_down(tables: Tables, edges: Iterable[str]) -> list[Unblocked]:
    """Count down these jobs, in id order. At zero they are pending, and due now at the earliest."""
    unblocked: list[Unblocked] = []
    for job_id, ended in sorted(Counter(edges).items()):
        row = tables.jobs[job_id]
        if row.status == "blocked":
            left = row.blockers_left - ended
            row = replace(row, blockers_left=left)
            if not left:
                row = replace(row, status="pending", scheduled_at=max(tables.now, row.scheduled_at))
            tables.put(row)
            if not left:
                unblocked.append(Unblocked(row.id, row.type_name, tables.is_due(row)))
    return unblocked
