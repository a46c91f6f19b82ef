"""Giving back jobs that a worker does not know of."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, job_of
from queuert.ports.program import Program
from queuert.records.model import JobRow


class Releasing(BaseOperations):
    def release(self, worker: str, held: Sequence[str]) -> Program[list[JobRow]]:
        rows: list[Row] = yield self.statement(
            "release.unknown", worker=worker, held=list(held), statistics=self.statistics
        )
        return sorted(map(job_of, rows), key=lambda job: job.id)
