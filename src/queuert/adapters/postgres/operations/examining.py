"""Comparing what must agree, repairing it, and the surroundings."""

from __future__ import annotations

from queuert.adapters.postgres.installation import functions_for, migrations_for
from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, utc
from queuert.adapters.sql.migrate import current_version
from queuert.ports.program import Program
from queuert.records.circumstances import RunningGroup
from queuert.records.examination import Damage, Look, OldSnapshot, RepairOutcome, Surroundings, TableState, place_of


class Examining(BaseOperations):
    parts: tuple[str, ...] = ("running", "ready", "line", "lanes", "later", "blocked", "keys")
    full_parts: tuple[str, ...] = ("edges", "jobs")

    def examine(self, part: str, after: tuple[str, ...] | None, limit: int, seconds: float) -> Program[Look]:
        rows: list[Row] = yield self.statement(f"examine.{part}", after=list(after or ()), limit=limit, seconds=seconds)
        *found, (_, number, _, place) = rows
        return Look(
            [Damage(kind, job_id, detail, place_of(where)) for kind, job_id, detail, where in found],
            int(number),
            None if place is None else place_of(place),
        )

    def repair_damage(self, damage: Damage) -> Program[RepairOutcome]:
        rows: list[Row] = yield self.statement(
            "examine.repair", kind=damage.kind, id=damage.id, place=list(damage.place)
        )
        outcome: RepairOutcome = rows[0][0]
        return outcome

    def surroundings(self, *, full: bool) -> Program[Surroundings]:  # noqa: ARG002
        known = migrations_for(self.installation)[-1].version
        version = yield from current_version(self.texts, known)
        installed: list[Row] = []
        if version >= known:
            installed = yield self.statement("functions.installed", digest=functions_for(self.installation).digest)
        ((clock, replica, read_only, track_counts, autovacuum),) = yield self.statement("examine.server")
        snapshot: list[Row] = yield self.statement("examine.oldest_snapshot")
        names = self.installation.tables()
        tables: list[Row] = [] if not version else (yield self.statement("examine.tables", names=names))
        complete = bool(installed and installed[0][0])
        running: list[Row] = (yield self.statement("examine.running_groups")) if complete else []
        settings = (("track_counts", track_counts), ("autovacuum", autovacuum))
        return Surroundings(
            server_clock=utc(clock),
            schema_version=version,
            known_version=known,
            functions_installed=complete,
            read_only="it is a replica" if replica else "default_transaction_read_only is on" if read_only else None,
            settings_off=tuple(name for name, on in settings if not on),
            snapshot=OldSnapshot(*snapshot[0]) if snapshot else None,
            tables=tuple(TableState(*row) for row in tables),
            running=tuple(
                RunningGroup(type_name, worker, number, oldest, utc(since), queue)
                for type_name, worker, number, oldest, since, queue in running
            ),
        )
