"""The state port: what the engine asks of a database.

Every operation is array-shaped and is a program (see `program`): on PostgreSQL one round trip, on SQLite a few
statements inside one transaction. An operation either takes effect as a whole or raises and leaves nothing behind,
also inside a transaction that goes on afterwards (adapters that need several statements wrap them in `atomically`).

Every comparison with "now" uses the database's clock. Lists are answered in the order of their arguments unless
said otherwise. Empty arguments are answered without a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

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
from queuert.ports.provider import AsyncProvider, SyncProvider

Conn = TypeVar("Conn")


class StateOperations(Protocol):
    """The operations, as programs. Runs unchanged under a sync and an async provider."""

    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        """Store jobs, all or none.

        A job with blockers is `blocked` until each of those chains is completed; those that are completed already
        do not count. Race-free against completion in both directions: the starter touches the blocking chain's
        current job in a way that the completer must wait for, and the other way round.
        A job with `dedup` is not stored if the key's chain matches (see `Dedup`): `existing` is that chain, and
        nothing is written. Two concurrent transactions with one key never both create: the second waits for the
        first to end. Two jobs of one call with the same key: the second finds the first.
        Raises `JobIdExists` (stored already, or twice in the call), `BlockerNotFound`, `JobTypeMismatch` (a
        blocking chain of another type); then nothing is stored.
        """
        ...

    def get_jobs(self, ids: Sequence[str]) -> Program[list[JobRow | None]]:
        """Read jobs; None where there is none."""
        ...

    def get_chains(self, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow | None]]:
        """Read chains. With `lock`, their current jobs are locked for update, in id order, and stay current."""
        ...

    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        """Make ready jobs running: attempt + 1, a lease by type, a new token.

        Order: queue priority, job priority, scheduled time, id. Two callers never get the same job. Locked rows are
        skipped, and nothing is waited for, except by claims that are subject to one cap: those queue up so that
        the cap is exact. The cost depends only on the number of jobs claimed. Jobs past their deadline are claimed
        too and marked `expired`, for the worker to settle.
        """
        ...

    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        """Extend claims. Returns the ids of those that are lost. Locked rows are skipped: they are owned."""
        ...

    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:
        """Keep a claim until the transaction ends; False if it is over. Without `lock`, only look.

        Whoever would end the claim (settle, delete, take the job over) waits for the transaction. Renewal and reaping
        pass it by, so the claim should end with it. One command, for which it is enough to know how many rows it is
        answered with, none for False: so it can be sent along with BEGIN (see `SyncProvider.transaction`).
        """
        ...

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        """End or put back jobs, store their continuations, and free the dependents of chains that completed.

        A settlement whose token is not the job's current one, or (without a token) whose job has ended or is gone, is
        skipped: `held` is False and its continuation is not stored. Dependents are counted down under lock, in id
        order, by a statement that sees every commit before it.
        """
        ...

    def reap(self, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes) -> Program[list[JobRow]]:
        """Put back running jobs whose lease has ended, oldest lease first, with `error` as their last error.

        Only these types, never the ignored ids; locked rows are skipped. Returns the rows as they now are.
        """
        ...

    def next_available_in(self, types: Sequence[str]) -> Program[float | None]:
        """Seconds until a pending job of these types is due: 0 if one is, None if there is none."""
        ...

    def trigger(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        """Make pending jobs due now. None for a job that is not pending. Rows as they now are."""
        ...

    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        """Make failed jobs pending and due now, attempts counted from zero. None for a job that has not failed."""
        ...

    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        """Delete chains with all their jobs, blocker edges and keys; unknown ids are passed over.

        With `cascade` the chains that their jobs wait (or waited) for are deleted too, transitively. If a job outside
        the set is blocked, pending, running or failed and has one of them as a blocker, nothing is deleted and
        `waiting` says which. Rows are locked in id order, so that deletions, claims and completions never deadlock.
        """
        ...

    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[list[JobRow]]:
        """Jobs in id order. Sort key: the job's id."""
        ...

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[list[ChainRow]]:
        """Chains. A chain's type is its first job's, its status its current job's, its creation its first job's.

        Sort key: the chain's id; when filtered by status, the current job's id (which that index has in order).
        """
        ...

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        """The jobs of a chain in their order. Sort key: the chain index, in decimal."""
        ...

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        """The jobs that have this chain as a blocker, whatever their status. Sort key: the job's id."""
        ...

    def job_blockers(self, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
        """The chains that each job has as blockers, in the order they were named."""
        ...

    def stats(self) -> Program[list[TypeStats]]:
        """Open and failed jobs by type, sorted by type name. The cost does not depend on completed jobs."""
        ...

    def migrate(self) -> Program[list[int]]:
        """Bring the schema up to date; returns the versions applied. Raises `SchemaTooNew`.

        Safe when several processes do it at once, and after one that was killed half-way.
        """
        ...

    def vacuum(self) -> Program[None]:
        """Give free space back, as far as that is possible online."""
        ...


class StateAdapter(Generic[Conn]):
    """Operations and the provider that carries them out, for an async client.

    `sync_provider`, where the driver has one, reaches the same database from threads: plain `def` handlers use it.
    """

    def __init__(
        self,
        operations: StateOperations,
        provider: AsyncProvider[Conn],
        sync_provider: SyncProvider[Conn] | None = None,
    ) -> None:
        self.operations = operations
        self.provider = provider
        self.sync_provider = sync_provider

    async def close(self) -> None:
        await self.provider.close()
        if self.sync_provider is not None:
            self.sync_provider.close()


class SyncStateAdapter(Generic[Conn]):
    """Operations and the provider that carries them out, for a sync client."""

    def __init__(self, operations: StateOperations, provider: SyncProvider[Conn]) -> None:
        self.operations = operations
        self.provider = provider

    def close(self) -> None:
        self.provider.close()
