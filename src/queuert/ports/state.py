"""The state port: the operations that the library needs from a database.

Every operation takes and returns arrays, and is a program (see `program`). On PostgreSQL it is one
round trip, on SQLite a few statements inside one transaction. An operation takes effect as a whole,
or raises and changes nothing. This is also true inside a transaction that continues afterwards:
adapters that need several statements wrap them in `atomically`.

Every comparison with "now" uses the database's clock. Results are in the order of the arguments
unless the operation defines another order. Empty arguments return at once, without a command.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from queuert.model import (
    Available,
    BlockerRow,
    ChainFilter,
    ChainRow,
    ClaimRequest,
    ClaimResult,
    Created,
    Deleted,
    Freed,
    JobFilter,
    JobRow,
    Lease,
    NewJob,
    PageRequest,
    Settled,
    Settlement,
    TypeStats,
    WorkerRow,
)
from queuert.ports.program import Program
from queuert.ports.provider import AsyncProvider, SyncProvider

__all__ = ["StateAdapter", "StateOperations", "SyncStateAdapter"]

Conn = TypeVar("Conn")


class StateOperations(Protocol):
    """The operations, as programs. A sync and an async provider run the same programs."""

    unblocked_at_once: int
    """How many edges `settle` counts down at most: `UNBLOCKED_AT_ONCE`. Tests use smaller
    numbers."""

    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        """Store jobs, all or none.

        A job with blockers is `blocked` until each of those chains is completed. Chains that are
        already completed do not count, also while `continue_unblocking` still frees the jobs that
        waited for them before. There must be no race with a completion: the starting transaction
        locks or changes the blocking chain's current job, so that the completing transaction waits
        for it, and the other way round.

        A job with `dedup` is not stored if the key's chain matches (see `Dedup`): `existing` is
        that chain, and nothing is written. Two concurrent transactions with the same key never both
        create a chain: the second waits for the first to end. If two jobs of one call have the same
        key, the second finds the first.

        Raises `JobIdExists` (already stored, or twice in the call), `BlockerNotFound` or
        `JobTypeMismatch` (a blocking chain of another type). Then nothing is stored.
        """
        ...

    def stores_id(self, job_id: str) -> bool:
        """Whether a job can have this id. Where it cannot, no other operation may raise because of
        it: such a job does not exist.
        """
        ...

    def get_jobs(self, ids: Sequence[str]) -> Program[list[JobRow | None]]:
        """Read jobs. None for an id that does not exist."""
        ...

    def get_chains(self, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow | None]]:
        """Read chains. None for an id that does not exist.

        With `lock`, their current jobs are locked for update, in id order. They stay the current
        jobs until the transaction ends.
        """
        ...

    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        """Make ready jobs running: attempt + 1, a lease by type, a new token.

        Order: queue priority, job priority, scheduled time, id. Two callers never get the same job.
        A claim skips locked rows and does not wait. Only claims under the same cap wait for each
        other, so that the cap is exact. The cost depends only on the number of jobs claimed. Jobs
        past their deadline are claimed too and marked `expired`. The worker settles them. A job
        that had a `last_attempt_at` before is marked `ran_before`.

        Jobs that do not begin at once get ordinals (see `ClaimRequest`). They are stored with the
        claim.
        """
        ...

    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        """Extend the leases of claims. Returns the ids of the jobs whose claim is lost.

        Locked rows are skipped: their claim is still valid.
        """
        ...

    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:
        """Lock a claim until the transaction ends. False if the claim is lost.

        Operations that would end the claim (settle, delete, take the job over) wait for the
        transaction. Renewal and reaping skip the locked row, so the claim should end with the
        transaction. With `lock=False`, only check the claim and lock nothing.

        It is one command, and the number of rows is its answer: no row means False. So it can be
        sent together with BEGIN (see `SyncProvider.transaction`).
        """
        ...

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        """End or put back jobs, store their continuations, and unblock the dependents of chains
        that completed.

        A settlement is skipped if its token is not the job's current one. Without a token, it is
        skipped if the job has ended or does not exist. Then `applied` is False, and its
        continuation is not stored. The counters of dependents are decremented under lock, in id
        order, by a statement that sees every commit before it.

        A chain may have very many dependents. Settlements with a token count down the first
        `unblocked_at_once` edges of the chains that they complete, by chain id and job id. If there
        are others, a work item for each of these chains is stored with the completion, and `more`
        is True: `continue_unblocking` does the rest. Settlements without a token unblock all
        dependents.
        """
        ...

    def continue_unblocking(self, limit: int) -> Program[Freed]:
        """Free more dependents of a chain that is completed: the next `limit` edges of one work
        item, by job id.

        Each edge counts down once: the position of the work item moves in the same transaction, and
        the item is deleted at the end. Jobs that were stored after the completion are not counted
        down. The item with the lowest chain id comes first. One that another transaction has locked
        is skipped. The dependents are locked in id order.
        """
        ...

    def reap(
        self, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes, dead: Sequence[str] = ()
    ) -> Program[list[JobRow]]:
        """Put back running jobs whose lease has expired, oldest lease first, with `error` as their
        last error.

        A job whose handler cannot have begun is put back untouched, as by `give_back`: its ordinal
        is above the horizon of its worker, and the server has not been restarted since that worker
        registered. Without an ordinal, or if the worker is not known, the attempt counts.

        Only jobs of these types, and none of the ignored ids. Locked rows are skipped. Jobs of the
        `dead` workers are put back, too, although their leases run. Returns the new rows.
        """
        ...

    def release(self, worker: str, held: Sequence[str]) -> Program[list[JobRow]]:
        """Put back the running jobs of this worker, except those it holds. Returns the new rows, in
        the order of their ids.

        A claim whose client hung up may still commit. Then the worker does not know the jobs, so
        their attempts cannot have begun: they are as they were before the claim. Locked rows are
        skipped.
        """
        ...

    def dead_workers(self, worker_id: str, types: Sequence[str], *, grace: float) -> Program[list[str]]:
        """The ids of other workers that are known to be dead and still have running jobs of these
        types, sorted.

        A worker is known to be dead only if its row tells how to find out. If it holds a lock, the
        lock must have been missing for `grace` seconds, counted from the first call that noticed,
        on the same run of the database server. If it is a process of this machine, that process
        must have ended. In all other cases, only the end of its leases tells that it is gone.

        A worker that finds its own lock missing is no longer listed by that lock. Rows of workers
        may be changed; locked ones are skipped.
        """
        ...

    def register_worker(self, worker_id: str, *, lock_key: int | None = None, horizon: int = 0) -> Program[WorkerRow]:
        """Store that a worker is here, or that it is still here, and return its row.

        `lock_key` is the lock that the worker holds by its notify adapter (see
        `NotifyAdapter.hold`). It is stored only if this database sees that it is held. `horizon` is
        the one that the worker knows: a server that crashed may have lost it. A worker that is not
        known yet gets a new row. Otherwise `registered_at` is kept, and the horizon is never
        lowered. Nothing but that row is locked.
        """
        ...

    def move_horizon(self, worker_id: str, horizon: int) -> Program[bool]:
        """Store that handlers of this worker's jobs up to this ordinal may begin. It never moves
        back. False if the worker is not known: it has to register again.

        It is called often, by itself and never inside a transaction, and must be cheap. It need not
        survive a crash of the server: then `reap` counts all attempts. It must survive the crash of
        any other process. Nothing but the worker's row is locked.
        """
        ...

    def forget_worker(self, worker_id: str) -> Program[bool]:
        """A worker ends. True if its row is gone.

        While jobs are still running under its name, its row is kept, without the lock: only the
        end of their leases tells that it is gone.
        """
        ...

    def clean_workers(self, *, unseen_for: float) -> Program[list[str]]:
        """Delete the rows of workers that have not registered for this many seconds and under whose
        name no job is running. Returns their ids, sorted. Locked rows are skipped.
        """
        ...

    def list_workers(self) -> Program[list[WorkerRow]]:
        """All known workers, sorted by id."""
        ...

    def next_available_in(self, types: Sequence[str]) -> Program[Available]:
        """Seconds until a pending job of these types is due, and whether there are work items for
        `continue_unblocking`.
        """
        ...

    def trigger(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        """Make pending jobs due now. Returns the new rows, None for a job that is not pending."""
        ...

    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        """Make failed jobs pending and due now, and count attempts from zero.

        Returns the new rows, None for a job that has not failed.
        """
        ...

    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        """Delete chains with all their jobs, blocker edges and keys. Unknown ids are skipped.

        With `cascade`, also delete the chains that their jobs wait (or waited) for, transitively.
        If a job outside the set is blocked, pending, running or failed and has one of them as a
        blocker, nothing is deleted, and `waiting` names these jobs: also a job that
        `continue_unblocking` has not come to yet. The work items of deleted chains are deleted.
        Rows are locked in id order, so that deletions, claims and completions never deadlock.
        """
        ...

    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[list[JobRow]]:
        """Jobs in id order. Sort key: the job's id."""
        ...

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[list[ChainRow]]:
        """Chains. A chain has the type and the creation time of its first job, and the status of
        its current job.

        Sort key: the chain's id. With a filter by status: the current job's id, because the index
        of that filter is sorted by it.
        """
        ...

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        """The jobs of a chain, first to last. Sort key: the chain index, as a decimal number."""
        ...

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        """The jobs that have this chain as a blocker, with any status. Sort key: the job's id."""
        ...

    def job_blockers(self, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
        """The blockers of each job, in the order in which they were named."""
        ...

    def stats(self) -> Program[list[TypeStats]]:
        """Open and failed jobs by type, sorted by type name.

        The cost does not depend on completed jobs.
        """
        ...

    def migrate(self) -> Program[list[int]]:
        """Create or update the tables. Returns the versions applied. Raises `SchemaTooNew`.

        It is safe to run in several processes at once, and after a process was killed in the
        middle.
        """
        ...

    def vacuum(self) -> Program[None]:
        """Return free space to the file system, as far as possible while other processes work."""
        ...


class StateAdapter(Generic[Conn]):
    """Operations and the provider that runs them, for an async client.

    Args:
        operations: The storage operations.
        provider: Runs them on connections of the driver.
        sync_provider: Connects to the same database from threads, for plain `def` handlers. None
            (the default) if the driver has no sync connections.
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
        """Close the providers."""
        await self.provider.close()
        if self.sync_provider is not None:
            self.sync_provider.close()


class SyncStateAdapter(Generic[Conn]):
    """Operations and the provider that runs them, for a sync client.

    Args:
        operations: The storage operations.
        provider: Runs them on connections of the driver.
    """

    def __init__(self, operations: StateOperations, provider: SyncProvider[Conn]) -> None:
        self.operations = operations
        self.provider = provider

    def close(self) -> None:
        """Close the provider."""
        self.provider.close()
