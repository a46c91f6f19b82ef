"""Pausing and resuming."""

from __future__ import annotations

from typing import TypeVar

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, utc
from queuert.adapters.sql.circumstances import in_order
from queuert.ports.program import Program, atomically
from queuert.records.model import NOW, When
from queuert.records.pauses import Pause, PauseTarget

T = TypeVar("T")


class Pausing(BaseOperations):
    def pause(
        self,
        target: PauseTarget,
        *,
        until: When | None = None,
        reason: str | None = None,
        by: str | None = None,
        cancel_running: bool = False,
    ) -> Program[Pause]:
        program = self._pause(target, until or NOW, reason, by, cancel_running)
        if target.scope != "key":
            return (yield from program)
        return (yield from atomically(self._with_lane(target, program)))

    def _pause(
        self, target: PauseTarget, end: When, reason: str | None, by: str | None, cancel_running: bool
    ) -> Program[Pause]:
        rows: list[Row] = yield self.statement(
            "pausing.pause",
            scope=target.scope,
            target=target.name,
            at=end.at,
            after=end.after,
            reason=reason,
            by=by,
            cancel_running=cancel_running,
        )
        return _pause_of(rows[0])

    def _with_lane(self, target: PauseTarget, program: Program[T]) -> Program[T]:
        """If it is about a key, claims have to look at its lane again."""
        done = yield from program
        yield self.statement("limits.look", lane=target.name)
        return done

    def resume(self, target: PauseTarget) -> Program[Pause | None]:
        program = self._resume(target)
        if target.scope != "key":
            return (yield from program)
        return (yield from atomically(self._with_lane(target, program)))

    def _resume(self, target: PauseTarget) -> Program[Pause | None]:
        rows: list[Row] = yield self.statement("pausing.resume", scope=target.scope, target=target.name)
        return next((_pause_of(row[:-1]) for row in rows if row[-1]), None)

    def list_pauses(self) -> Program[list[Pause]]:
        rows: list[Row] = yield self.statement("pausing.list")
        return in_order(map(_pause_of, rows))


def _pause_of(row: Row) -> Pause:
    scope, name, since, until, *others = row
    return Pause(PauseTarget(scope, name), utc(since), until and utc(until), *others)
