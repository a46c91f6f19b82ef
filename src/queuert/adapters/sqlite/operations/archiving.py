"""Archiving what has been kept long enough. Other writers wait until the transaction ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.pruning import Note, Pruning
from queuert.adapters.sqlite.operations.rows import Row, attempt_of, job_of, micros, moment
from queuert.ports.program import Program
from queuert.records.archive import ArchiveRow, ChainToArchive, chains_to_archive, oldest_month
from queuert.records.retention import LOOK_AGAIN_NEEDED, look_again

DROPPED = 1000
"""Rows of the archive that are deleted at once."""


class Archiving(Pruning):
    def waiting_to_archive(self, types: Sequence[str]) -> Program[list[str]]:
        rows: list[Row] = (yield self.statement("archive.waiting", types=array(types))) if types else []
        return sorted(row[0] for row in rows)

    def take_archive(self, type_name: str, limit: int) -> Program[list[ChainToArchive]]:
        return together(self._take_archive(type_name, limit))

    def _take_archive(self, type_name: str, limit: int) -> Program[list[ChainToArchive]]:
        now = self.now()
        rows: list[Row] = yield self.statement("archive.take", type=type_name, limit=limit)
        asked = [row[0] for row in rows]
        if not asked:
            return []
        policies = {each.policy.chain_type: each.policy for each in (yield from self.policies())}
        judged = yield from self.judge(asked, policies, now)
        due = [chain_id for chain_id, found in judged.items() if found.what == "archive"]
        needed = yield from self.still_needed(due)
        notes: list[Note] = []
        for chain_id, found in judged.items():
            if chain_id in needed:
                again = look_again(found.created_at, moment(now), LOOK_AGAIN_NEEDED)
                notes.append((chain_id, micros(again), None, None, None))
            elif found.what in ("due", "later"):
                notes.append((chain_id, max(now, micros(found.at)), None, None, None))
        chosen = [chain_id for chain_id in due if chain_id not in needed]
        chains = array(chosen)
        jobs: list[Row] = yield self.statement("archive.jobs", chains=chains)
        blockers: list[Row] = yield self.statement("archive.blockers", chains=chains)
        attempts: list[Row] = yield self.statement("archive.attempts", chains=chains)
        yield self.statement("prune.strike_out", chains=array(asked))
        notes += yield from self.delete_prunable(chains, now)
        if notes:
            yield self.statement("prune.note", notes=array(notes))
        return chains_to_archive(
            [job_of(row) for row in jobs],
            [(job_id, chain_id) for job_id, chain_id in blockers],
            [(job_id, attempt_of(rest)) for job_id, *rest in attempts],
        )

    def store_archive(self, rows: Sequence[ArchiveRow]) -> Program[None]:
        if rows:
            items = [
                (
                    row.chain_id,
                    row.chain_type,
                    row.status,
                    micros(row.created_at),
                    micros(row.ended_at),
                    row.place,
                    None if row.chain is None else row.chain.decode(),
                )
                for row in rows
            ]
            yield from together(self._write_archive("archive.store", rows=array(items), now=self.now()))

    def get_archived(self, ids: Sequence[str]) -> Program[list[ArchiveRow | None]]:
        rows: list[Row] = (yield self.statement("archive.get", ids=array(ids))) if ids else []
        found = {
            row[0]: ArchiveRow(row[0], row[1], row[2], moment(row[3]), moment(row[4]), moment(row[5]), row[6], row[7])
            for row in rows
        }
        return [found.get(chain_id) for chain_id in ids]

    def archive_failed(self, type_name: str, error: str | None) -> Program[None]:
        yield from together(self._write_archive("archive.failed", type=type_name, error=error, now=self.now()))

    def tend_archive(self) -> Program[bool]:
        months = [each.policy.months for each in (yield from self.policies()) if each.policy.archived]
        kept = [each for each in months if each is not None]
        if kept and len(kept) == len(months):
            before = micros(oldest_month(moment(self.now()), max(kept)))
            ((old,),) = yield self.statement("archive.old", before=before, limit=DROPPED)
            if old:
                yield from together(self._write_archive("archive.drop", before=before, limit=DROPPED))
            return bool(old == DROPPED)
        return False

    def _write_archive(self, name: str, **parameters: Any) -> Program[None]:
        yield self.statement(name, **parameters)
