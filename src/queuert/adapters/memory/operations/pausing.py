"""Pausing and resuming."""

from __future__ import annotations

from queuert.adapters.memory.command import read, write
from queuert.adapters.memory.tables import Tables
from queuert.records.model import When
from queuert.records.pauses import Pause, PauseTarget


class Pausing:
    @write
    def pause(
        self,
        tables: Tables,
        target: PauseTarget,
        *,
        until: When | None = None,
        reason: str | None = None,
        by: str | None = None,
        cancel_running: bool = False,
    ) -> Pause:
        before = {each.target: each for each in tables.pauses_now()}
        since = before[target].since if target in before else tables.now
        end = None if until is None else tables.moment(until)
        tables.pauses = before | {target: (made := Pause(target, since, end, reason, by, cancel_running))}
        return made

    @write
    def resume(self, tables: Tables, target: PauseTarget) -> Pause | None:
        before = {each.target: each for each in tables.pauses_now()}
        ended = before.pop(target, None)
        tables.pauses = before
        return ended

    @read
    def list_pauses(self, tables: Tables) -> list[Pause]:
        return tables.pauses_now()
