"""Limits by key: what is declared, what is set at run time, and how the keys are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, utc
from queuert.ports.program import Program
from queuert.records.limits import (
    COUNTED,
    SEPARATOR,
    Change,
    DeclaredLimit,
    KnownLimit,
    LimitRow,
    LimitRule,
    lane_of,
    split_lane,
)
from queuert.records.model import JobRow

_rule = msgspec.json.Decoder(LimitRule)


class Limiting(BaseOperations):
    def declare_limits(
        self, types: Sequence[str], declared: Sequence[DeclaredLimit], *, alive_for: float
    ) -> Program[list[KnownLimit]]:
        if not types:
            return []
        rows: list[Row] = yield self.statement(
            "limits.declare",
            types=list(types),
            names=[each.name for each in declared],
            digests=[each.digest for each in declared],
            rules=[msgspec.json.encode(each.rule).decode() for each in declared],
            limit_types=[msgspec.json.encode(each.types).decode() for each in declared],
            alive_for=alive_for,
        )
        return [KnownLimit(name, tuple(of)) for name, of in rows]

    def set_limit(self, name: str, key: str | None, change: Change) -> Program[LimitRow]:
        lane = _text(name, key)
        yield self.statement("limits.change", lane=lane, limit_name=name, rule=msgspec.json.encode(change).decode())
        (row,) = yield from self._list(1, None, lane)
        return row

    def get_limit(self, name: str, key: str | None) -> Program[LimitRow]:
        (row,) = yield from self._list(1, None, _text(name, key))
        return row

    def jobs_before(self, job: JobRow) -> Program[int]:
        ((number,),) = yield self.statement(
            "limits.before", lane=job.lane, priority=job.priority, at=job.scheduled_at, id=job.id, counted=COUNTED
        )
        return int(number)

    def clear_limit(self, name: str, key: str | None) -> Program[bool]:
        ((cleared,),) = yield self.statement("limits.clear", lane=_text(name, key), limit_name=name)
        return bool(cleared)

    def list_limits(self, limit: int, after: tuple[str, str | None] | None) -> Program[list[LimitRow]]:
        return self._list(limit, "" if after is None else _text(*after), None)

    def _list(self, limit: int, after: str | None, exactly: str | None) -> Program[list[LimitRow]]:
        rows: list[Row] = yield self.statement(
            "limits.list", limit=limit, after=after, exactly=exactly, counted=COUNTED
        )
        return [_row(row) for row in rows]


def _text(name: str, key: str | None) -> str:
    """A lane; for all keys, the name of the limit."""
    return name if key is None else lane_of(name, key)


def _row(row: Row) -> LimitRow:
    lane, rule, is_set, running, waiting, opens, holder, held_by = row
    name, text = split_lane(lane)
    key = text if SEPARATOR in lane else None
    opens_at = opens and utc(opens)
    return LimitRow(name, key, _rule.decode(rule), is_set, running, waiting, opens_at, holder, tuple(held_by))
