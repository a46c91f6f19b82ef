"""Whether the jobs that are stored and open, and those of schedules, can be run by this code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from queuert.engine.engine import Engine
from queuert.errors import InvalidSchedule, JobTypeError
from queuert.features.schedules.stored import Definition, definition_of, encode
from queuert.features.schedules.times import from_data
from queuert.jobs.registry import Registry
from queuert.ports.program import Program
from queuert.records.listings import JobFilter, PageRequest
from queuert.records.schedules import ScheduleRow

PAGE = 500
MOST_MESSAGES = 20
"""Of one problem of one type. Messages may contain values, and then each job has its own. The
others are counted together."""

Problem = Literal["unknown_type", "no_handler", "invalid_input"]
ScheduleProblem = Literal[Problem, "unreadable", "would_change"]


@dataclass
class Incompatibility:
    """A problem that some jobs of one type have."""

    problem: Problem
    job_type: str
    message: str
    """What is wrong with the first of them."""
    first_id: str
    jobs: int = 0


@dataclass
class ScheduleFinding:
    """What is wrong with a schedule, or would change with this code."""

    problem: ScheduleProblem
    schedule: str
    message: str


@dataclass
class Compatibility:
    examined: int = 0
    complete: bool = True
    """Whether all open jobs were examined."""
    problems: list[Incompatibility] = field(default_factory=list[Incompatibility])
    schedules: int = 0
    """How many schedules were examined."""
    findings: list[ScheduleFinding] = field(default_factory=list[ScheduleFinding])

    @property
    def fits(self) -> bool:
        """Whether this code can run everything. It may change schedules."""
        return not self.problems and all(each.problem == "would_change" for each in self.findings)


def check(
    engine: Engine,
    registry: Registry,
    handled: Collection[str] | None,
    limit: int | None,
    declared: Mapping[str, Definition] | None = None,
) -> Program[Compatibility]:
    """Decode open jobs, and those of schedules, with the classes of the registry, and look for
    their handlers.

    `handled`: the types that have a handler; None if that is not known. `limit`: how many jobs to
    examine at most; None: all. `declared`: the schedules that this code declares; None if that is
    not known.
    """
    found = Compatibility()
    yield from _check_jobs(engine, registry, handled, limit, found)
    yield from _check_schedules(engine, registry, handled, declared, found)
    return found


def _check_jobs(
    engine: Engine, registry: Registry, handled: Collection[str] | None, limit: int | None, found: Compatibility
) -> Program[None]:
    known: dict[tuple[str, str, str], Incompatibility] = {}
    messages: Counter[tuple[str, str]] = Counter()
    where, after = JobFilter(statuses=("blocked", "pending", "running")), None
    while True:
        listed = yield from engine.state.list_jobs(where, PageRequest(PAGE, after))
        for row in listed.rows:
            if limit is not None and found.examined >= limit:
                found.complete = False
                return
            found.examined += 1
            problem = _problem(registry, handled, row.type_name, row.input)
            if problem is not None:
                kind, key = (row.type_name, problem[0]), (row.type_name, *problem)
                if key not in known and messages[kind] >= MOST_MESSAGES:
                    key = (*kind, "")
                if key not in known:
                    messages[kind] += 1
                    known[key] = Incompatibility(problem[0], row.type_name, problem[1], row.id)
                    found.problems.append(known[key])
                known[key].jobs += 1
        if len(listed.rows) < PAGE and listed.stopped_at is None:
            return
        after = listed.stopped_at or listed.rows[-1].id


def _check_schedules(
    engine: Engine,
    registry: Registry,
    handled: Collection[str] | None,
    declared: Mapping[str, Definition] | None,
    found: Compatibility,
) -> Program[None]:
    after: str | None = None
    while True:
        rows = [row for row in (yield from engine.state.list_schedules(PAGE, after)).rows if row is not None]
        for row in rows:
            found.schedules += 1
            problem = _of_schedule(registry, handled, declared, row)
            if problem is not None:
                found.findings.append(ScheduleFinding(problem[0], row.name, problem[1]))
        if len(rows) < PAGE:
            return
        after = rows[-1].name


def _of_schedule(
    registry: Registry,
    handled: Collection[str] | None,
    declared: Mapping[str, Definition] | None,
    row: ScheduleRow,
) -> tuple[ScheduleProblem, str] | None:
    if row.declared and declared is not None and row.name in declared:
        # Whatever is stored: this code brings it up to date.
        if encode(declared[row.name]) == row.definition:
            return None
        return "would_change", f"this code declares it in another way: {from_data(declared[row.name].times)}"
    try:
        definition = definition_of(row)
    except InvalidSchedule as error:
        return "unreadable", str(error)
    problem = None if definition.type is None else _problem(registry, handled, definition.type, bytes(definition.input))
    if problem is None and row.declared and declared is not None:
        return "would_change", "this code does not declare it: it is disabled after 24 hours"
    return problem


def _problem(
    registry: Registry, handled: Collection[str] | None, type_name: str, data: bytes
) -> tuple[Problem, str] | None:
    job_type = registry.by_name(type_name)
    if job_type is None:
        return "unknown_type", "this code has no job class of this name, and none with this alias or version"
    try:
        job_type.decode_input(data)
    except JobTypeError as error:
        return "invalid_input", str(error)
    if handled is not None and type_name not in handled:
        return "no_handler", "this code has no handler for it"
    return None
