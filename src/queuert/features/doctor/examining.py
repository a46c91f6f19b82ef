"""Examines a database, and repairs what can be proven to be wrong.

First the surroundings, then the rows, part by part: each look is one snapshot of the database, and
short (see `StateOperations.examine`). Each repair is a transaction of its own.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence

from queuert.engine.engine import Engine
from queuert.features.audit import Who
from queuert.features.doctor.diagnosis import Diagnosis, Finding
from queuert.features.doctor.surroundings import around, of_channel, of_clock, of_workers
from queuert.features.doctor.texts import after_repair, finding_of
from queuert.ports.program import Program, atomically
from queuert.ports.state import StateOperations
from queuert.records.audit import NewAudit
from queuert.records.examination import Damage, RepairOutcome

ROWS = 10_000
"""Rows that are compared in each part, unless all of them are."""
ROWS_AT_ONCE = 5_000
SECONDS = 0.5
"""How old a snapshot may get, in seconds. The last look at a row may take longer."""
DAMAGES = 1_000
"""The most findings of one call: the next call finds the rest."""


def doctor(engine: Engine, who: Who, *, full: bool, fix: bool, heard: bool | None) -> Program[Diagnosis]:
    """`heard`: whether the notification channel works; None: that is not known."""
    state = engine.state
    before = time.time()
    facts = yield from state.surroundings(full=full)
    findings = [*around(facts), *of_clock(facts, before, time.time()), *of_channel(heard)]
    rows, complete = 0, True
    if facts.up_to_date:
        workers = yield from state.list_workers()
        findings += of_workers(facts, workers)
        damages, rows, complete = yield from _compare(state, full=full)
        for damage in damages:
            finding = finding_of(damage)
            if fix and finding.fixable:
                finding = after_repair(finding, damage, (yield from _repair(state, damage, finding, who)))
            findings.append(finding)
    findings.sort(key=lambda each: each.severity != "error")
    return Diagnosis(tuple(findings), rows, complete, full)


def _repair(state: StateOperations, damage: Damage, finding: Finding, who: Who) -> Program[RepairOutcome]:
    """A repair, and a record of it if it is known who does it: both or neither."""
    by, reason = who
    repair = state.repair_damage(damage)
    if by is None:
        return (yield from repair)
    entry = NewAudit(action="repair", target=f"{finding.code} {finding.subject}", by=by, reason=reason)
    return (yield from atomically(_recorded(state, repair, entry)))


def _recorded(state: StateOperations, repair: Program[RepairOutcome], entry: NewAudit) -> Program[RepairOutcome]:
    outcome = yield from repair
    if outcome == "repaired":
        yield from state.record_audit([entry])
    return outcome


def _compare(state: StateOperations, *, full: bool) -> Program[tuple[Sequence[Damage], int, bool]]:
    """What does not agree, how many rows were compared, and whether these were all."""
    damages: dict[tuple[Hashable, ...], Damage] = {}
    """Several looks may find the same."""
    rows, complete = 0, True
    for part in (*state.parts, *state.full_parts) if full else state.parts:
        seen, after = 0, None
        while True:
            limit = ROWS_AT_ONCE if full else min(ROWS_AT_ONCE, ROWS - seen)
            look = yield from state.examine(part, after, limit, SECONDS)
            for each in look.damages:
                damages.setdefault((each.kind, each.id, each.place), each)
            seen, after = seen + look.rows, look.after
            if after is None:
                break
            if len(damages) >= DAMAGES or (not full and seen >= ROWS):
                complete = False
                break
        rows += seen
    return list(damages.values()), rows, complete
