"""Archiving what has been kept long enough."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.postgres.operations.base import BaseOperations, distinct
from queuert.adapters.postgres.rows import Row, job_of, json_of, utc
from queuert.ports.program import Program
from queuert.records.archive import ArchiveRow, ChainToArchive, chains_to_archive
from queuert.records.failed_attempts import FailedAttempt


class Archiving(BaseOperations):
    def waiting_to_archive(self, types: Sequence[str]) -> Program[list[str]]:
        rows: list[Row] = (yield self.statement("archive.waiting", types=list(types))) if types else []
        return sorted(row[0] for row in rows)

    def take_archive(self, type_name: str, limit: int) -> Program[list[ChainToArchive]]:
        ((chains,),) = yield self.statement("archive.take", type=type_name, limit=limit)
        if not chains:
            return []
        rows: list[Row] = yield self.statement("archive.jobs", chains=chains)
        jobs = [job_of(row) for row in rows]
        ids = [job.id for job in jobs]
        blockers: list[Row] = yield self.statement("archive.blockers", jobs=ids)
        attempts: list[Row] = yield self.statement("archive.attempts", jobs=ids)
        yield self.statement("archive.delete", chains=chains)
        return chains_to_archive(
            jobs,
            [(job_id, chain_id) for job_id, chain_id in blockers],
            [(job_id, FailedAttempt(*rest)) for job_id, *rest in attempts],
        )

    def store_archive(self, rows: Sequence[ArchiveRow]) -> Program[None]:
        if rows:
            yield self.statement(
                "archive.store",
                ids=[row.chain_id for row in rows],
                types=[row.chain_type for row in rows],
                statuses=[row.status for row in rows],
                created=[row.created_at for row in rows],
                ended=[row.ended_at for row in rows],
                places=[row.place for row in rows],
                chains=[None if row.chain is None else row.chain.decode() for row in rows],
            )

    def get_archived(self, ids: Sequence[str]) -> Program[list[ArchiveRow | None]]:
        asked = distinct(ids)
        rows: list[Row] = (yield self.statement("archive.get", ids=asked)) if asked else []
        found = {
            row[0]: ArchiveRow(row[0], row[1], row[2], utc(row[3]), utc(row[4]), utc(row[5]), row[6], json_of(row[7]))
            for row in rows
        }
        return [found.get(chain_id) for chain_id in ids]

    def archive_failed(self, type_name: str, error: str | None) -> Program[None]:
        yield self.statement("archive.failed", type=type_name, error=error)

    def tend_archive(self) -> Program[bool]:
        ((more,),) = yield self.statement("archive.tend")
        return bool(more)
