"""Schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, utc
from queuert.ports.program import Program
from queuert.records.schedules import DueSchedules, ScheduleLook, ScheduleRow, SeenRelease


class Scheduling(BaseOperations):
    def get_schedules(self, names: Sequence[str], *, lock: bool = False) -> Program[ScheduleLook]:
        if not names:
            return ScheduleLook(datetime.now(UTC), [])
        rows: list[Row] = yield self.statement("scheduling.lock" if lock else "scheduling.get", names=list(names))
        found = {row[1]: _schedule_of(row[1:]) for row in rows if row[1] is not None}
        return ScheduleLook(_read_at(rows), [found.get(name) for name in names])

    def find_schedule(self, incarnation: int) -> Program[ScheduleRow | None]:
        rows: list[Row] = yield self.statement("scheduling.find", incarnation=incarnation)
        return _schedule_of(rows[0][1:]) if rows else None

    def list_schedules(self, limit: int, after: str | None = None) -> Program[ScheduleLook]:
        rows: list[Row] = yield self.statement("scheduling.list", limit=limit, after=after or "")
        return ScheduleLook(_read_at(rows), [_schedule_of(row[1:]) for row in rows])

    def due_schedules(self, limit: int, functions: Sequence[str], *, lock: bool = False) -> Program[DueSchedules]:
        rows: list[Row] = yield self.statement(
            "scheduling.lock_due" if lock else "scheduling.due", limit=limit, functions=list(functions)
        )
        *due, last = rows
        return DueSchedules(utc(last[0]), [_schedule_of(row[2:]) for row in due], last[1])

    def save_schedules(self, rows: Sequence[ScheduleRow]) -> Program[list[bool]]:
        if not rows:
            return []
        saved: list[Row] = yield self.statement(
            "scheduling.save",
            names=[row.name for row in rows],
            incarnations=[row.incarnation for row in rows],
            versions=[row.version for row in rows],
            next_at=[row.next_at for row in rows],
            due_at=[row.due_at for row in rows],
            by_function=[row.by_function for row in rows],
            declared=[row.declared for row in rows],
            definitions=[row.definition.decode() for row in rows],
            states=[row.state.decode() for row in rows],
        )
        names = {name for (name,) in saved}
        return [row.name in names for row in rows]

    def delete_schedules(self, names: Sequence[str]) -> Program[list[ScheduleRow]]:
        if not names:
            return []
        rows: list[Row] = yield self.statement("scheduling.delete", names=list(names))
        return sorted((_schedule_of(row[1:]) for row in rows), key=lambda row: row.name)

    def see_releases(
        self, declared: Sequence[tuple[str, str]], *, alive_for: float, forget_after: float
    ) -> Program[list[SeenRelease]]:
        if not declared:
            return []
        rows: list[Row] = yield self.statement(
            "scheduling.see",
            schedules=[schedule for schedule, _ in declared],
            releases=[release for _, release in declared],
            alive_for=alive_for,
            forget_after=forget_after,
        )
        return [SeenRelease(row[0], row[1], utc(row[2]), utc(row[3])) for row in rows]

    def undeclared_schedules(self, limit: int, *, alive_for: float, after: str | None = None) -> Program[ScheduleLook]:
        rows: list[Row] = yield self.statement(
            "scheduling.undeclared", limit=limit, alive_for=alive_for, after=after or ""
        )
        return ScheduleLook(utc(rows[0][0]), [_schedule_of(row[1:]) for row in rows if row[1] is not None])


def _read_at(rows: Sequence[Row]) -> datetime:
    """When these rows were read. Without rows, nothing depends on it."""
    return utc(rows[0][0]) if rows else datetime.now(UTC)


def _schedule_of(row: Row) -> ScheduleRow:
    name, incarnation, version, next_at, due_at, by_function, declared, definition, state = row
    return ScheduleRow(
        name=name,
        incarnation=incarnation,
        version=version,
        next_at=next_at and utc(next_at),
        due_at=due_at and utc(due_at),
        by_function=by_function,
        declared=declared,
        definition=definition.encode(),
        state=state.encode(),
    )
