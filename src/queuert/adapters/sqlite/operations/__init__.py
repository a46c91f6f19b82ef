"""The operations of the state port, one module per family, as programs over statements.

Operations that need several statements run as one command (see `Statements`): in a transaction that
takes the write lock when it begins, or in a savepoint of the open one. SQLite has one writer at a
time, so there are no row locks: a transaction that writes is the only one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuert.adapters.sql.migrate import MigrationPlan, migrate, plan
from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.archiving import Archiving
from queuert.adapters.sqlite.operations.auditing import Auditing
from queuert.adapters.sqlite.operations.base import migrations_for
from queuert.adapters.sqlite.operations.cancelling import Cancelling
from queuert.adapters.sqlite.operations.claiming import Claiming
from queuert.adapters.sqlite.operations.examining import Examining
from queuert.adapters.sqlite.operations.explaining import Explaining
from queuert.adapters.sqlite.operations.listing import Listing
from queuert.adapters.sqlite.operations.releasing import Releasing
from queuert.adapters.sqlite.operations.rows import Row
from queuert.adapters.sqlite.operations.scheduling import Scheduling
from queuert.ports.program import Program
from queuert.ports.state import StateOperations
from queuert.records.retention import Vacuumed

VACUUMED_AT_ONCE = 500
"""Pages returned in one transaction. It limits how long writers wait."""


class SqliteOperations(
    Claiming, Releasing, Cancelling, Archiving, Explaining, Examining, Listing, Auditing, Scheduling
):
    """The state port on a SQLite database, for the tables of one prefix."""

    def migrate(self) -> Program[list[int]]:
        return migrate(migrations_for(self.prefix), self._texts, applied_at=self.now())

    def plan_migration(self) -> Program[MigrationPlan]:
        """What `migrate` would do."""
        return plan(migrations_for(self.prefix), self._texts)

    def vacuum(self) -> Program[Vacuumed]:
        """Return free pages to the file system in small steps, then copy the write-ahead log into
        the database. The checkpoint is passive: it copies what it can without waiting.
        """
        size = yield from self._size()
        free, before = (yield from self._free_pages()), 0
        while free and free != before:  # a file that was made without auto_vacuum keeps its free pages
            before = free
            free = yield from together(self._return_pages(min(free, VACUUMED_AT_ONCE)))
        yield self.statement("vacuum.checkpoint")
        return Vacuumed(size, (yield from self._size()))

    def _size(self) -> Program[int]:
        """Of the file, in bytes."""
        ((size,),) = yield self.statement("vacuum.size")
        return int(size)

    def _return_pages(self, pages: int) -> Program[int]:
        """The driver takes one step of this pragma, which is one page, so it is run once per
        page.
        """
        for _ in range(pages):
            yield self.statement("vacuum.give_back")
        return (yield from self._free_pages())

    def _free_pages(self) -> Program[int]:
        rows: list[Row] = yield self.statement("vacuum.free_pages")
        return int(rows[0][0])


if TYPE_CHECKING:
    _: type[StateOperations] = SqliteOperations
