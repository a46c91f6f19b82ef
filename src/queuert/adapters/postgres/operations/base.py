"""What all families of operations are built on: the statements of one installation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.installation import DATABASE_CLOCK, Installation, statements_for
from queuert.adapters.postgres.rows import Row, job_of
from queuert.base.ids import is_uuid
from queuert.ports.program import Program
from queuert.records.model import JobRow


class BaseOperations:
    """The statements of one installation.

    `positions`: how far claims have scanned each type, kept while many dead index entries have to
    be skipped (`scan_positions` in `functions/claiming.sql`). `cursors`: for each limit, the last
    lane that a claim has looked at (`look_for_lanes`). `worker_rows`: where the rows of this
    process's workers are.
    """

    statistics = True

    def __init__(self, schema: str = "public", table_prefix: str = "queuert_", clock: str = DATABASE_CLOCK) -> None:
        self.installation = Installation(schema, table_prefix, clock)
        self.texts = statements_for(self.installation)
        self.words = self.installation.words()
        self.positions: dict[str, msgspec.Raw] = {}
        self.cursors: dict[str, str | None] = {}
        self.worker_rows: dict[str, str] = {}

    def statement(self, name: str, **parameters: Any) -> PgStatement:
        """The named statement, ready to be yielded."""
        return self.texts[name](**parameters)

    def stores_id(self, job_id: str) -> bool:
        return is_uuid(job_id) is not None

    def jobs_by_id(self, name: str, ids: Sequence[str], **parameters: Any) -> Program[list[JobRow | None]]:
        """The jobs that the named statement returns, in the order of the ids; None where it returns
        none.
        """
        asked = distinct(ids)
        if not asked:
            return [None] * len(ids)
        rows: list[Row] = yield self.statement(name, ids=asked, **parameters)
        found = {row[0]: job_of(row) for row in rows}
        return [found.get(job_id) for job_id in ids]


def distinct(ids: Iterable[str]) -> list[str]:
    """The ids, each once, without those that no job can have: the server would refuse them, and
    break the transaction.
    """
    return [job_id for job_id in dict.fromkeys(ids) if is_uuid(job_id)]
