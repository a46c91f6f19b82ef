"""Limits by key: what is declared, what is set at run time, and how the keys are."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.lanes import holder_of, limit_rule, lines, room_of, rule_of, running_in
from queuert.adapters.memory.tables import Declared, Tables
from queuert.records.limits import COUNTED, NAMED, Change, DeclaredLimit, KnownLimit, LimitRow, lane_of, split_lane
from queuert.records.model import JobRow


class Limiting:
    @write
    def declare_limits(
        self, tables: Tables, types: Sequence[str], declared: Sequence[DeclaredLimit], *, alive_for: float
    ) -> list[KnownLimit]:
        for each in declared:
            key, now = (each.name, each.digest), tables.now
            before = tables.declared.get(key)
            alive = before is not None and before.last_seen_at >= now - timedelta(seconds=alive_for)
            tables.declared[key] = Declared(each, before.first_seen_at if before is not None and alive else now, now)
        found: dict[str, set[str]] = {}
        for known in tables.declared.values():
            found.setdefault(known.limit.name, set()).update(known.limit.types)
        return [KnownLimit(name, tuple(sorted(of))) for name, of in sorted(found.items()) if not of.isdisjoint(types)]

    @write
    def set_limit(self, tables: Tables, name: str, key: str | None, change: Change) -> LimitRow:
        tables.changes[name, key] = {**tables.changes.get((name, key), {}), **change}
        return _row(tables, name, key)

    @write
    def clear_limit(self, tables: Tables, name: str, key: str | None) -> bool:
        return tables.changes.pop((name, key), None) is not None

    @read
    def get_limit(self, tables: Tables, name: str, key: str | None) -> LimitRow:
        return _row(tables, name, key)

    @read
    def jobs_before(self, tables: Tables, job: JobRow) -> int:
        place = (job.priority, job.scheduled_at, job.id)
        line = lines(tables).get(job.lane or "", ())
        return min(COUNTED, sum((each.priority, each.scheduled_at, each.id) < place for each in line))

    @read
    def list_limits(self, tables: Tables, limit: int, after: tuple[str, str | None] | None) -> list[LimitRow]:
        found: set[tuple[str, str | None]] = {(name, None) for name, _ in tables.declared}
        found |= tables.changes.keys()
        held = {lane for job_id in tables.held if (lane := tables.jobs[job_id].lane) is not None}
        found |= {split_lane(lane) for lane in {*tables.lanes, *lines(tables), *held}}
        wanted = [each for each in found if after is None or _sorted(each) > _sorted(after)]
        return [_row(tables, name, key) for name, key in sorted(wanted, key=_sorted)[:limit]]


def _sorted(row: tuple[str, str | None]) -> tuple[str, str]:
    """A limit comes before its keys."""
    name, key = row
    return name, "" if key is None else f" {key}"


def _row(tables: Tables, name: str, key: str | None) -> LimitRow:
    is_set = (name, key) in tables.changes
    if key is None:
        number = sum(split_lane(tables.jobs[job_id].lane or "")[0] == name for job_id in tables.held)
        return LimitRow(name, None, limit_rule(tables, name), is_set, number)
    lane = lane_of(name, key)
    rule, waiting = rule_of(tables, lane), len(lines(tables).get(lane, ()))
    holder = holder_of(tables, lane) if rule.ordered else None
    running = sorted(running_in(tables, lane), key=lambda row: (row.last_attempt_at or tables.now, row.id))
    return LimitRow(
        name, key, rule, is_set, len(running), min(COUNTED, waiting),
        room_of(tables, lane, rule, waiting).opens_at, None if holder is None else holder.id,
        tuple(row.id for row in running[:NAMED]),
    )  # fmt: skip
