"""Schedules: a table that is read by name and by the time when they are due."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from msgspec.structs import replace

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Tables
from queuert.records.schedules import DueSchedules, ScheduleLook, ScheduleRow, SeenRelease


class Scheduling:
    @read
    def get_schedules(self, tables: Tables, names: Sequence[str], *, lock: bool = False) -> ScheduleLook:  # noqa: ARG002
        return ScheduleLook(tables.now, [tables.schedules.get(name) for name in names])

    @read
    def find_schedule(self, tables: Tables, incarnation: int) -> ScheduleRow | None:
        return next((row for row in tables.schedules.values() if row.incarnation == incarnation), None)

    @read
    def list_schedules(self, tables: Tables, limit: int, after: str | None = None) -> ScheduleLook:
        names = sorted(name for name in tables.schedules if after is None or name > after)
        return ScheduleLook(tables.now, [tables.schedules[name] for name in names[:limit]])

    @read
    def due_schedules(
        self,
        tables: Tables,
        limit: int,
        functions: Sequence[str],
        *,
        lock: bool = False,  # noqa: ARG002
    ) -> DueSchedules:
        mine = sorted(
            (row.due_at, name)
            for name, row in tables.schedules.items()
            if row.due_at is not None and (not row.by_function or name in functions)
        )
        due = [tables.schedules[name] for due_at, name in mine if due_at <= tables.now]
        later = [(due_at - tables.now).total_seconds() for due_at, _ in mine if due_at > tables.now]
        return DueSchedules(tables.now, due[:limit], min(later, default=None))

    @write
    def save_schedules(self, tables: Tables, rows: Sequence[ScheduleRow]) -> list[bool]:
        return [_save(tables, row) for row in rows]

    @write
    def delete_schedules(self, tables: Tables, names: Sequence[str]) -> list[ScheduleRow]:
        gone = [tables.schedules.pop(name) for name in sorted(set(names)) if name in tables.schedules]
        for key in [key for key in tables.releases if key[0] in names]:
            del tables.releases[key]
        return gone

    @write
    def see_releases(
        self, tables: Tables, declared: Sequence[tuple[str, str]], *, alive_for: float, forget_after: float
    ) -> list[SeenRelease]:
        now, names = tables.now, {schedule for schedule, _ in declared}
        for key in declared:
            known = tables.releases.get(key)
            anew = known is None or known.seen_at < now - timedelta(seconds=alive_for)
            tables.releases[key] = SeenRelease(*key, now if known is None or anew else known.first_seen_at, now)
        forgotten = now - timedelta(seconds=forget_after)
        for key in [key for key, seen in tables.releases.items() if key[0] in names and seen.seen_at < forgotten]:
            del tables.releases[key]
        return [seen for key, seen in sorted(tables.releases.items()) if key[0] in names]

    @read
    def undeclared_schedules(
        self, tables: Tables, limit: int, *, alive_for: float, after: str | None = None
    ) -> ScheduleLook:
        limit_at = tables.now - timedelta(seconds=alive_for)
        alive = {name for (name, _), seen in tables.releases.items() if seen.seen_at >= limit_at}
        found = sorted(
            name
            for name, row in tables.schedules.items()
            if row.declared and name not in alive and (after is None or name > after)
        )
        return ScheduleLook(tables.now, [tables.schedules[name] for name in found[:limit]])


def _save(tables: Tables, row: ScheduleRow) -> bool:
    known = tables.schedules.get(row.name)
    if row.version != (0 if known is None else known.version):
        return False
    if known is not None:
        row = replace(row, incarnation=known.incarnation, declared=known.declared)
    tables.schedules[row.name] = replace(row, version=row.version + 1)
    return True
