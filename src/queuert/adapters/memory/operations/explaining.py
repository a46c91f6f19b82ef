"""What is known about a job that is not running."""

from __future__ import annotations

from queuert.adapters.memory.command import read
from queuert.adapters.memory.operations.workers import listed_worker
from queuert.adapters.memory.tables import Tables
from queuert.base.statuses import TERMINAL
from queuert.records.circumstances import (
    AHEAD,
    BLOCKERS_READ,
    BLOCKERS_SHOWN,
    BlockingRow,
    Circumstances,
    DueJob,
    RunningGroup,
    concerned,
)
from queuert.records.model import JobRow


class Explaining:
    @read
    def circumstances(self, tables: Tables, chain_id: str) -> Circumstances | None:
        chain = tables.chain(chain_id)
        if chain is None:
            return None
        job = chain.current
        workers, others_alive = concerned((listed_worker(tables, each) for each in sorted(tables.workers)), job)
        due = tables.is_due(job)
        types = {
            name
            for row in workers
            if row.about is not None and job.type_name in row.about.types
            for name in row.about.types
        }
        return Circumstances(
            now=tables.now,
            chain=chain,
            blockers=_blockers(tables, job) if job.status == "blocked" else [],
            workers=workers,
            others_alive=others_alive,
            running=_running(tables) if due else [],
            due=_due(tables, types) if due else [],
            last_handled=tables.last_handled.get(job.type_name),
            pauses=tables.pauses_now(),
        )


def _blockers(tables: Tables, job: JobRow) -> list[BlockingRow]:
    found = [
        BlockingRow(row.chain_id, row.chain_type, row.status)
        for row in tables.blocker_rows(job.id)[:BLOCKERS_READ]
        if row.status != "completed"
    ]
    return sorted(found, key=lambda each: each.status not in TERMINAL)[:BLOCKERS_SHOWN]


def _running(tables: Tables) -> list[RunningGroup]:
    groups: dict[tuple[str, str, str], list[JobRow]] = {}
    for row in tables.jobs.values():
        if row.status == "running":
            groups.setdefault((row.type_name, row.leased_by or "", tables.held[row.id].queue), []).append(row)
    found: list[RunningGroup] = []
    for (type_name, worker, queue), rows in sorted(groups.items()):
        since, oldest = min((row.last_attempt_at or tables.now, row.id) for row in rows)
        found.append(RunningGroup(type_name, worker, len(rows), oldest, since, queue))
    return found


def _due(tables: Tables, types: set[str]) -> list[DueJob]:
    found: list[DueJob] = []
    for name in sorted(types):
        of_type = [
            DueJob(name, priority, scheduled_at, job_id)
            for priority, scheduled_at, job_id in tables.pending
            if scheduled_at <= tables.now and tables.jobs[job_id].type_name == name
        ]
        found += of_type[:AHEAD]
    return found
