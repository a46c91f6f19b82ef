"""Comparing what must agree, repairing it, and the surroundings."""

from __future__ import annotations

from queuert.adapters.sql.migrate import current_version
from queuert.adapters.sql.statement import Statement
from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import BaseOperations, migrations_for
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, moment
from queuert.ports.program import Program
from queuert.records.circumstances import RunningGroup
from queuert.records.examination import Damage, Look, RepairOutcome, Surroundings, place_of
from queuert.records.model import new_token

_AT_ONCE = 1000
"""Rows of one statement: a few milliseconds."""

_BEGIN = {
    "running": ("",),
    "ready": ("", -(2**63), -(2**63), ""),
    "line": ("", -(2**63), -(2**63), ""),
    "later": ("", -(2**63), -(2**63)),
    "pending": ("",),
    "blocked": ("",),
    "keys": ("", ""),
    "edges": ("", -1),
    "jobs": ("",),
}
"""Before the first row of each part."""

_LEASE = 60.0
"""Seconds that a worker has to renew a claim that was repaired."""


class Examining(BaseOperations):
    parts: tuple[str, ...] = ("running", "ready", "line", "later", "pending", "blocked", "keys")
    full_parts: tuple[str, ...] = ("edges", "jobs")

    def examine(
        self,
        part: str,
        after: tuple[str, ...] | None,
        limit: int,
        seconds: float,  # noqa: ARG002
    ) -> Program[Look]:
        begin = dict(zip(("after_1", "after_2", "after_3", "after_4"), after or _BEGIN[part], strict=False))
        limit = min(limit, _AT_ONCE)
        rows: list[Row] = yield self.statement(f"examine.{part}", limit=limit, **begin)
        return Look(
            [Damage(kind, job_id, detail, _place(where)) for kind, job_id, detail, where, _ in rows if kind],
            len(rows),
            place_of(rows[-1][4]) if len(rows) == limit else None,
        )

    def repair_damage(self, damage: Damage) -> Program[RepairOutcome]:
        statement = self._repair(damage)
        if statement is None:
            return "gone"
        return (yield from together(self._changed(statement)))

    def _changed(self, statement: Statement) -> Program[RepairOutcome]:
        rows: list[Row] = yield statement
        return "repaired" if rows else "gone"

    def _repair(self, damage: Damage) -> Statement | None:
        now, job_id, place = self.now(), damage.id, damage.place
        match damage.kind:
            case "stray":
                name = "examine.leave_queue" if place == ("queue",) else "examine.drop_claim"
                return self.statement(name, id=job_id)
            case "unleased":
                until = add_seconds(now, _LEASE)
                return self.statement("examine.lease", id=job_id, until=until, token=new_token())
            case "not_queued":
                return self.statement("examine.queue", id=job_id, now=now)
            case "miscounted":
                return self.statement("examine.count", id=job_id, now=now)
            case "stray_edge":
                return self.statement("examine.drop_edge", id=job_id, position=place[0])
            case "stray_key":
                return self.statement("examine.drop_key", id=job_id, chain_type=place[0], key=place[1])
            case _:
                return None

    def surroundings(self, *, full: bool) -> Program[Surroundings]:
        known = migrations_for(self.prefix)[-1].version
        version = yield from current_version(self._texts, known)
        ((journal_mode,),) = yield self.statement("examine.journal_mode")
        ((size, free),) = yield self.statement("examine.file_size")
        said: list[tuple[str]] = (yield self.statement("examine.integrity")) if full else []
        running: list[Row] = (yield self.statement("examine.running_groups")) if version >= known else []
        return Surroundings(
            schema_version=version,
            known_version=known,
            journal_mode=journal_mode,
            file_size=size,
            file_free=free,
            corrupt=tuple(text for (text,) in said if text != "ok"),
            running=tuple(
                RunningGroup(type_name, worker, number, oldest, moment(since or 0), queue)
                for type_name, worker, number, oldest, since, queue in running
            ),
        )


def _place(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    return place_of(text) if text.startswith("[") else (text,)
