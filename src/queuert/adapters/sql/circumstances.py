"""Lists that SQL databases return as JSON, as the records of `Circumstances`.

Times are microseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from queuert.base.statuses import Status
from queuert.base.times import EPOCH
from queuert.records.circumstances import BlockingRow, DueJob, RunningGroup
from queuert.records.pauses import Pause, PauseScope, PauseTarget
from queuert.records.workers import LastHandled

_blockers = msgspec.json.Decoder(list[tuple[str, str, Status]])
_running = msgspec.json.Decoder(list[tuple[str, str, int, str, int, str | None]])
_handled = msgspec.json.Decoder(tuple[int, str | None, str | None])
_pauses = msgspec.json.Decoder(list[tuple[PauseScope, str, int, int | None, str | None, str | None, bool]])
_due = msgspec.json.Decoder(list[tuple[str, int, int, str]])


def moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def blocking_rows(text: str | None) -> list[BlockingRow]:
    return [] if text is None else [BlockingRow(*each) for each in _blockers.decode(text)]


def running_groups(text: str | None) -> list[RunningGroup]:
    groups = [] if text is None else _running.decode(text)
    found = [
        RunningGroup(kind, worker, number, oldest, moment(at), queue)
        for kind, worker, number, oldest, at, queue in groups
    ]
    return sorted(found, key=lambda each: (each.type_name, each.worker, each.queue or ""))


def due_jobs(text: str | None) -> list[DueJob]:
    """By type, and in the order of claims."""
    jobs = [] if text is None else _due.decode(text)
    return [DueJob(kind, priority, moment(at), job_id) for kind, priority, at, job_id in sorted(jobs)]


def pause_rows(text: str | None) -> list[Pause]:
    rows = [] if text is None else _pauses.decode(text)
    found = [
        Pause(PauseTarget(scope, name), moment(since), None if until is None else moment(until), reason, by, stops)
        for scope, name, since, until, reason, by, stops in rows
    ]
    return in_order(found)


def in_order(pauses: Iterable[Pause]) -> list[Pause]:
    """Sorted here: the order of texts in a database depends on its collation."""
    return sorted(pauses, key=lambda each: (each.target.scope, each.target.name))


def handled(type_name: str, text: str | None) -> LastHandled | None:
    if text is None:
        return None
    seen_at, host, release = _handled.decode(text)
    return LastHandled(type_name, moment(seen_at), host, release)
