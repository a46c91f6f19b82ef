"""Schedules."""

from __future__ import annotations

from collections.abc import Sequence

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import BaseOperations, array
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, micros, moment
from queuert.ports.program import Program
from queuert.records.schedules import DueSchedules, ScheduleLook, ScheduleRow, SeenRelease


class Scheduling(BaseOperations):
    def get_schedules(self, names: Sequence[str], *, lock: bool = False) -> Program[ScheduleLook]:  # noqa: ARG002
        now = moment(self.now())
        rows: list[Row] = (yield self.statement("scheduling.get", names=array(names))) if names else []
        found = {row[0]: _schedule_of(row) for row in rows}
        return ScheduleLook(now, [found.get(name) for name in names])

    def find_schedule(self, incarnation: int) -> Program[ScheduleRow | None]:
        rows: list[Row] = yield self.statement("scheduling.find", incarnation=incarnation)
        return _schedule_of(rows[0]) if rows else None

    def list_schedules(self, limit: int, after: str | None = None) -> Program[ScheduleLook]:
        now = moment(self.now())
        rows: list[Row] = yield self.statement("scheduling.list", after=after or "", limit=limit)
        return ScheduleLook(now, [_schedule_of(row) for row in rows])

    def due_schedules(self, limit: int, functions: Sequence[str], *, lock: bool = False) -> Program[DueSchedules]:  # noqa: ARG002
        now, mine = self.now(), array(list(functions))
        rows: list[Row] = yield self.statement("scheduling.due", functions=mine, limit=limit + 1)
        due = [row for row in rows if row[4] <= now]
        later = [row[4] for row in rows if row[4] > now]
        if len(due) > limit:
            following: list[Row] = yield self.statement("scheduling.next", now=now, functions=mine)
            later = [row[0] for row in following]
        next_in = (later[0] - now) / 1_000_000 if later else None
        return DueSchedules(moment(now), [_schedule_of(row) for row in due[:limit]], next_in)

    def save_schedules(self, rows: Sequence[ScheduleRow]) -> Program[list[bool]]:
        if not rows:
            return []
        return (yield from together(self._save(rows)))

    def _save(self, rows: Sequence[ScheduleRow]) -> Program[list[bool]]:
        saved: list[bool] = []
        for row in rows:
            values = {
                "schedule": row.name,
                "next_at": None if row.next_at is None else micros(row.next_at),
                "due_at": None if row.due_at is None else micros(row.due_at),
                "by_function": int(row.by_function),
                "definition": row.definition.decode(),
                "state": row.state.decode(),
            }
            if row.version:
                done: list[Row] = yield self.statement("scheduling.change", version=row.version, **values)
            else:
                done = yield self.statement(
                    "scheduling.add", incarnation=row.incarnation, declared=int(row.declared), **values
                )
            saved.append(bool(done))
        return saved

    def delete_schedules(self, names: Sequence[str]) -> Program[list[ScheduleRow]]:
        if not names:
            return []
        return (yield from together(self._delete_schedules(names)))

    def _delete_schedules(self, names: Sequence[str]) -> Program[list[ScheduleRow]]:
        rows: list[Row] = yield self.statement("scheduling.delete", names=array(names))
        yield self.statement("scheduling.forget", names=array(names))
        return [_schedule_of(row) for row in sorted(rows, key=lambda row: str(row[0]))]

    def see_releases(
        self, declared: Sequence[tuple[str, str]], *, alive_for: float, forget_after: float
    ) -> Program[list[SeenRelease]]:
        if not declared:
            return []
        return (yield from together(self._see(declared, alive_for, forget_after)))

    def _see(
        self, declared: Sequence[tuple[str, str]], alive_for: float, forget_after: float
    ) -> Program[list[SeenRelease]]:
        now = self.now()
        yield self.statement("scheduling.see", declared=array(declared), now=now, alive_since=_before(now, alive_for))
        names = array(sorted({schedule for schedule, _ in declared}))
        yield self.statement("scheduling.forget_old", names=names, seen_before=_before(now, forget_after))
        rows: list[Row] = yield self.statement("scheduling.releases", names=names)
        return [SeenRelease(*row[:2], *map(moment, row[2:])) for row in rows]

    def undeclared_schedules(self, limit: int, *, alive_for: float, after: str | None = None) -> Program[ScheduleLook]:
        now = self.now()
        rows: list[Row] = yield self.statement(
            "scheduling.undeclared", alive_since=_before(now, alive_for), after=after or "", limit=limit
        )
        return ScheduleLook(moment(now), [_schedule_of(row) for row in rows])


def _before(now: int, seconds: float) -> int:
    return add_seconds(now, -seconds)


def _schedule_of(row: Row) -> ScheduleRow:
    name, incarnation, version, next_at, due_at, by_function, declared, definition, state = row
    return ScheduleRow(
        name=name,
        incarnation=incarnation,
        version=version,
        next_at=None if next_at is None else moment(next_at),
        due_at=None if due_at is None else moment(due_at),
        by_function=bool(by_function),
        declared=bool(declared),
        definition=definition,
        state=state,
    )
