"""What happened to jobs, minute by minute. Other operations count it as part of what they do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import BaseOperations, array
from queuert.adapters.sqlite.operations.rows import Row, moment
from queuert.ports.program import Program
from queuert.records.history import (
    DAY,
    FINE,
    KEPT,
    MINUTE,
    ROLLED_UP,
    Happened,
    HistoryLook,
    Tally,
    What,
    bucket_of,
    floor,
    tallied,
)


class Claim(NamedTuple):
    """A running job, before it is changed. Times are microseconds."""

    id: str
    type_name: str
    began: int
    due: int
    attempt: int

    def ended(self, what: What, now: int) -> Happened:
        return self.type_name, now, what, (now - self.began) / 1_000_000, 1

    def taken_back(self) -> Happened:
        """Its handler did not begin after all."""
        return self.type_name, self.began, "begun", (self.began - self.due) / 1_000_000, -1


class Counting(BaseOperations):
    statistics = True

    def count(self, happened: Iterable[Happened]) -> Program[None]:
        """As part of one command."""
        rows, fine = list[Tally](), dict[tuple[str, int, What, int], dict[int, int]]()
        for each in tallied(happened):
            if each.bucket < FINE:
                rows.append(each)
            else:
                key = each.type_name, each.at, each.what, bucket_of(each.bucket - FINE)
                fine.setdefault(key, {})[each.bucket - FINE] = each.number
        tallies = [
            (MINUTE, each.at, each.type_name, *each[2:], fine.get((each.type_name, each.at, each.what, each.bucket)))
            for each in rows
        ]
        if tallies:
            yield self.statement("history.add", tallies=array(tallies))

    def claims(self, which: str, **parameters: Any) -> Program[dict[str, Claim]]:
        """The claims that the named statement finds, by job. None of them without statistics."""
        if not self.statistics:
            return {}
        rows: list[Row] = yield self.statement(f"history.{which}", **parameters)
        # One that was changed by hand may have no time.
        return {row[0]: Claim(row[0], row[1], row[2] or row[3], *row[3:]) for row in rows}

    def history(self, step: int, since: datetime | float, type_name: str | None = None) -> Program[HistoryLook]:
        now = self.now()
        first = since.timestamp() if isinstance(since, datetime) else now / 1_000_000 - since
        rows: list[Row] = yield self.statement("history.steps", step=step, since=floor(first, step), type=type_name)
        return HistoryLook(moment(now), [Tally(*row) for row in rows])

    def roll_up(self, limit: int) -> Program[bool]:
        now = self.now() / 1_000_000
        for fine, coarse, kept in (*ROLLED_UP, (DAY, None, KEPT)):
            before = floor(now - kept, coarse or DAY)
            found: list[Row] = yield self.statement("history.old", grain=fine, before=before, limit=1)
            if found:  # so the write lock is needed
                return (yield from together(self._roll_up(fine, coarse, before, limit)))
        return False

    def _roll_up(self, fine: int, coarse: int | None, before: int, limit: int) -> Program[bool]:
        rows: list[Row] = yield self.statement("history.old", grain=fine, before=before, limit=limit)
        if coarse is not None:
            yield self.statement("history.add", tallies=array([_coarser(row, coarse) for row in rows]))
        yield self.statement("history.remove", grain=fine, keys=array([row[:4] for row in rows]))
        return True


def _coarser(row: Row, grain: int) -> Sequence[Any]:
    at, *rest = row
    return (grain, floor(at, grain), *rest)
