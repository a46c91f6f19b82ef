"""What happened to jobs, minute by minute. Other operations count it as part of what they do."""

from __future__ import annotations

from datetime import datetime

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, utc
from queuert.ports.program import Program
from queuert.records.history import HistoryLook, Tally


class Counting(BaseOperations):
    _merged_up_to: str | None = None
    """The place in the table up to which the last steps have merged."""

    def history(self, step: int, since: datetime | float, type_name: str | None = None) -> Program[HistoryLook]:
        at, ago = (since, None) if isinstance(since, datetime) else (None, since)
        rows: list[Row] = yield self.statement("history.steps", step=step, at=at, ago=ago, type=type_name)
        (now,) = [row[-1] for row in rows if row[0] is None]
        return HistoryLook(utc(now), sorted(Tally(*row[:-1]) for row in rows if row[0] is not None))

    def roll_up(self, limit: int) -> Program[bool]:
        ((self._merged_up_to,),) = yield self.statement("history.roll_up", limit=limit, after=self._merged_up_to)
        return self._merged_up_to is not None
