"""Giving back jobs that a worker does not know of."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.counting import Counting
from queuert.adapters.sqlite.operations.rows import Row, job_of
from queuert.ports.program import Program
from queuert.records.model import JobRow


class Releasing(Counting):
    def release(self, worker: str, held: Sequence[str]) -> Program[list[JobRow]]:
        return together(self._release(worker, array(held)))

    def _release(self, worker: str, held: str) -> Program[list[JobRow]]:
        claims = yield from self.claims("claims_of", worker=worker, held=held)
        rows: list[Row] = yield self.statement("release.unknown", worker=worker, held=held, now=self.now())
        yield from self.count([claim.taken_back() for claim in claims.values()])
        return sorted(map(job_of, rows), key=lambda job: job.id)
