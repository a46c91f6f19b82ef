"""Pausing and resuming."""

from __future__ import annotations

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import BaseOperations
from queuert.adapters.sqlite.operations.rows import Row, moment, resolve
from queuert.ports.program import Program
from queuert.records.model import When
from queuert.records.pauses import Pause, PauseTarget


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
        return together(self._pause(target, until, {"reason": reason, "by": by, "cancel_running": cancel_running}))

    def _pause(self, target: PauseTarget, until: When | None, values: dict[str, str | bool | None]) -> Program[Pause]:
        now = self.now()
        yield self.statement("pausing.clean", now=now)
        end = None if until is None else resolve(until, now)
        rows: list[Row] = yield self.statement(
            "pausing.pause", scope=target.scope, target=target.name, now=now, until=end, **values
        )
        return _pause_of(rows[0])

    def resume(self, target: PauseTarget) -> Program[Pause | None]:
        return together(self._resume(target))

    def _resume(self, target: PauseTarget) -> Program[Pause | None]:
        yield self.statement("pausing.clean", now=self.now())
        rows: list[Row] = yield self.statement("pausing.resume", scope=target.scope, target=target.name)
        return _pause_of(rows[0]) if rows else None

    def list_pauses(self) -> Program[list[Pause]]:
        rows: list[Row] = yield self.statement("pausing.list", now=self.now())
        return [_pause_of(row) for row in rows]


def _pause_of(row: Row) -> Pause:
    scope, name, since, until, reason, by, cancel_running = row
    end = None if until is None else moment(until)
    return Pause(PauseTarget(scope, name), moment(since), end, reason, by, bool(cancel_running))
