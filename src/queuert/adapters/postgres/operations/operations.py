"""The operations of the state port, as programs over statements: one round trip each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.operations import claiming, creating, listing, migrating, reading, settling
from queuert.adapters.postgres.operations.rows import Row, chain_of, job_of
from queuert.adapters.postgres.operations.store import DATABASE_CLOCK, Installation, Store
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


class PostgresOperations:
    """What the engine asks of a PostgreSQL database, for the tables of one schema and prefix.

    `clock` is the SQL expression for "now"; only tests need another one than the database's clock.
    """

    def __init__(self, schema: str = "public", table_prefix: str = "queuert_", clock: str = DATABASE_CLOCK) -> None:
        self.store = Store(Installation(schema, table_prefix, clock))

    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        return creating.create_jobs(self.store, jobs)

    def get_jobs(self, ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return reading.get_jobs(self.store, ids)

    def get_chains(self, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow | None]]:
        return reading.get_chains(self.store, ids, lock=lock)

    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        return claiming.claim(self.store, request)

    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        return claiming.renew(self.store, leases)

    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:
        return claiming.hold(self.store, job_id, token, lock=lock)

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
        return settling.delete_chains(self.store, ids, cascade=cascade)

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
        return migrating.migrate(self.store)

    def vacuum(self) -> Program[None]:
        """The small tables first: theirs are the dead rows that claims have to step over."""
        for table in ("ready", "later", "running", "blocker", "key", "job"):
            yield PgStatement(f"VACUUM (ANALYZE) {self.store.words[table]}", alone=True)


if TYPE_CHECKING:
    _: type[StateOperations] = PostgresOperations
