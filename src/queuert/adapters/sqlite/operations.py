"""The operations of the state port, as programs over statements.

Those that need several statements run atomically: in a transaction that takes the write lock at its beginning, or in
a savepoint of the one that is open. SQLite has one writer at a time, so there are no row locks: whoever asks for a
lock is in a transaction, and a transaction that writes is the only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from queuert.adapters.sqlite import claiming, creating, deleting, listing, reading, settling
from queuert.adapters.sqlite.rows import Row, chain_of, job_of
from queuert.adapters.sqlite.store import Clock, Store, migrations_for
from queuert.adapters.sqlite.unit import as_unit
from queuert.model import (
    BlockerRow,
    ChainFilter,
    ChainRow,
    ClaimRequest,
    ClaimResult,
    Created,
    Deleted,
    JobFilter,
    JobRow,
    Lease,
    NewJob,
    PageRequest,
    Settled,
    Settlement,
    TypeStats,
)
from queuert.ports.program import Program
from queuert.ports.state import StateOperations
from queuert.sql.migrate import migrate

VACUUMED_AT_ONCE = 500
"""Pages given back in one transaction: writers wait no longer than that takes."""


class SqliteOperations:
    """What the engine asks of a SQLite database, for the tables of one prefix."""

    def __init__(self, table_prefix: str = "queuert_", clock: Clock | None = None) -> None:
        self.store = Store(table_prefix, clock)

    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        if not jobs:
            return []
        return (yield from as_unit(creating.store_jobs(self.store, jobs)))

    def get_jobs(self, ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return reading.get_jobs(self.store, ids)

    def get_chains(self, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow | None]]:  # noqa: ARG002
        return reading.get_chains(self.store, ids)

    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        return claiming.claim(self.store, request)

    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        return claiming.renew(self.store, leases)

    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:  # noqa: ARG002
        return claiming.hold(self.store, job_id, token)

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        return settling.settle(self.store, settlements)

    def reap(self, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes) -> Program[list[JobRow]]:
        return claiming.reap(self.store, types, ignored, limit, error)

    def next_available_in(self, types: Sequence[str]) -> Program[float | None]:
        return reading.next_available_in(self.store, types)

    def trigger(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return settling.change(self.store, "change.trigger", job_ids)

    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return settling.change(self.store, "change.retry", job_ids)

    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        return deleting.delete_chains(self.store, ids, cascade=cascade)

    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[list[JobRow]]:
        rows: list[Row] = yield listing.jobs(self.store, where, page)
        return [job_of(row) for row in rows]

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[list[ChainRow]]:
        rows: list[Row] = yield listing.chains(self.store, where, page)
        return [chain_of(row) for row in rows]

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        rows: list[Row] = yield listing.chain_jobs(self.store, chain_id, page)
        return [job_of(row) for row in rows]

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        rows: list[Row] = yield listing.blocked_jobs(self.store, chain_id, page)
        return [job_of(row) for row in rows]

    def job_blockers(self, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
        return reading.job_blockers(self.store, job_ids)

    def stats(self) -> Program[list[TypeStats]]:
        return reading.stats(self.store)

    def migrate(self) -> Program[list[int]]:
        store = self.store
        return migrate(migrations_for(store.prefix), store.texts, applied_at=store.now())

    def vacuum(self) -> Program[None]:
        """Free pages go back to the file system in small steps, the write-ahead log into the database.

        The checkpoint is passive: it copies what it can without waiting for anybody.
        """
        free, before = (yield from self._free_pages()), 0
        while free and free != before:  # a file that was made without auto_vacuum keeps its free pages
            before = free
            free = yield from as_unit(self._give_back(min(free, VACUUMED_AT_ONCE)))
        yield self.store("vacuum.checkpoint")

    def _give_back(self, pages: int) -> Program[int]:
        """The driver takes one step of this pragma, and each step is a page, so it is said as often as needed."""
        for _ in range(pages):
            yield self.store("vacuum.give_back")
        return (yield from self._free_pages())

    def _free_pages(self) -> Program[int]:
        rows: list[Row] = yield self.store("vacuum.free_pages")
        return int(rows[0][0])


if TYPE_CHECKING:
    _: type[StateOperations] = SqliteOperations
