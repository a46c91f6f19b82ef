"""Bringing a database up to date: numbered migrations for the tables, then the functions of this
version.

Functions are installed beside those of other versions, in one transaction, whenever this version's
set is not complete.
"""

from __future__ import annotations

from msgspec.structs import replace

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.installation import functions_for, migrations_for
from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row
from queuert.adapters.sql.migrate import MigrationPlan, carry_out, current_version, migrate, one_at_a_time, plan
from queuert.ports.program import Program
from queuert.records.retention import Vacuumed


class Migrating(BaseOperations):
    def migrate(self) -> Program[list[int]]:
        applied = yield from migrate(migrations_for(self.installation), self.texts, PgStatement)
        yield from self._ensure_functions()
        return applied

    def plan_migration(self) -> Program[MigrationPlan]:
        """What `migrate` would do. It needs no right to change tables."""
        planned = yield from plan(migrations_for(self.installation), self.texts)
        functions = bool(planned.missing) or (yield from self._work_left()) != (False, False)
        return replace(planned, functions=functions)

    def install_functions(self) -> Program[None]:
        """Only the functions, and only if this version's tables are there."""
        known = migrations_for(self.installation)[-1].version
        if (yield from current_version(self.texts, known)) >= known:
            yield from self._ensure_functions()

    def _ensure_functions(self) -> Program[None]:
        if (yield from self._work_left()) != (False, False):
            yield from one_at_a_time(self.texts, self._install)

    def _install(self) -> Program[bool]:
        functions = functions_for(self.installation)
        create, record = yield from self._work_left()  # look again, under the lock
        if create:
            for text in functions.statements:
                yield PgStatement(text)
            adopt = self.statement("functions.adopt", digest=functions.digest, functions=functions.names)
            yield from carry_out(adopt, PgStatement)
        if record:
            yield from carry_out(self.statement("functions.outdated", digest=functions.digest), PgStatement)
            yield self.statement("functions.forget")
            yield self.statement("functions.record", digest=functions.digest, functions=functions.names)
        return True

    def _work_left(self) -> Program[tuple[bool, bool]]:
        """Whether functions are missing, and whether the set must be recorded, with a newer schema
        version perhaps.
        """
        known = migrations_for(self.installation)[-1].version
        rows = yield self.statement("functions.installed", digest=functions_for(self.installation).digest)
        complete, version = rows[0] if rows else (False, 0)
        return not complete, version < known

    def vacuum(self) -> Program[Vacuumed]:
        """Tables with few rows first: claims have to step over their dead rows."""
        tables = self.statement("vacuum.tables", names=self.installation.tables())
        before: list[Row] = yield tables
        for name, _ in before:
            yield PgStatement(f"VACUUM (ANALYZE) {name}", alone=True)
        after: list[Row] = yield tables
        return Vacuumed(sum(size for _, size in before), sum(size for _, size in after))
