"""Archiving what has been kept long enough."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.operations.pruning import Step, prune_chain
from queuert.adapters.memory.tables import Tables
from queuert.records.archive import ArchiveRow, ChainToArchive, oldest_month
from queuert.records.retention import LOOK_AGAIN_NEEDED, look_again


class Archiving:
    @read
    def waiting_to_archive(self, tables: Tables, types: Sequence[str]) -> list[str]:
        return sorted(set(types) & set(tables.to_archive.values()))

    @write
    def take_archive(self, tables: Tables, type_name: str, limit: int) -> list[ChainToArchive]:
        step, due = Step(tables), set[str]()
        for chain_id in sorted(each for each, name in tables.to_archive.items() if name == type_name)[:limit]:
            del tables.to_archive[chain_id]
            found = step.judge(chain_id)
            if found is not None and found.what == "archive":
                due.add(chain_id)
            elif found is not None and found.what != "ever":
                tables.noted[chain_id] = max(tables.now, found.at)
        needed = step.still_needed(due)
        for chain_id in needed:
            tables.noted[chain_id] = look_again(tables.jobs[chain_id].created_at, tables.now, LOOK_AGAIN_NEEDED)
        chains = [_whole(tables, chain_id) for chain_id in sorted(due - needed)]
        for chain_id in sorted(due - needed):
            prune_chain(tables, chain_id)
        return chains

    @write
    def store_archive(self, tables: Tables, rows: Sequence[ArchiveRow]) -> None:
        for row in rows:
            tables.archived[row.chain_id] = replace(row, archived_at=tables.now)

    @read
    def get_archived(self, tables: Tables, ids: Sequence[str]) -> list[ArchiveRow | None]:
        return [tables.archived.get(chain_id) for chain_id in ids]

    @write
    def archive_failed(self, tables: Tables, type_name: str, error: str | None) -> None:
        kept = tables.policies.get(type_name)
        if kept is not None:
            failed_at = None if error is None else tables.now
            tables.policies[type_name] = replace(kept, archive_error=error, archive_failed_at=failed_at)

    @write
    def tend_archive(self, tables: Tables) -> bool:
        months = [kept.policy.months for kept in tables.policies.values() if kept.policy.archived]
        known = [each for each in months if each is not None]
        if known and len(known) == len(months):
            before = oldest_month(tables.now, max(known))
            tables.archived = {name: row for name, row in tables.archived.items() if row.archived_at >= before}
        return False


def _whole(tables: Tables, chain_id: str) -> ChainToArchive:
    jobs = tables.chain_jobs(chain_id)
    return ChainToArchive(
        jobs,
        {job.id: [each.chain_id for each in tables.blockers.get(job.id, ())] for job in jobs},
        {job.id: list(tables.attempts.get(job.id, ())) for job in jobs},
    )
