"""The state port: the operations that the library needs from a database.

Every operation takes and returns arrays, and is a program (see `program`). On PostgreSQL it is one
round trip, on SQLite a few statements inside one transaction. An operation takes effect as a whole,
or raises and changes nothing. This is also true inside a transaction that continues afterwards:
adapters that need several statements wrap them in `atomically`.

Every comparison with "now" uses the database's clock. Results are in the order of the arguments
unless the operation defines another order. Empty arguments return at once, without a command.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from queuert.ports.clock import Clock
from queuert.ports.program import Program
from queuert.ports.provider import AsyncProvider, SyncProvider
from queuert.records.archive import ArchiveRow, ChainToArchive
from queuert.records.audit import KEPT, AuditRecord, NewAudit
from queuert.records.circumstances import Circumstances
from queuert.records.examination import Damage, Look, RepairOutcome, Surroundings
from queuert.records.failed_attempts import FailedAttempt
from queuert.records.history import HistoryLook
from queuert.records.limits import Change, DeclaredLimit, KnownLimit, LimitRow
from queuert.records.listings import ChainFilter, JobFilter, Listed, PageRequest
from queuert.records.model import (
    NO_DELAYS,
    Available,
    BlockerRow,
    Cancelled,
    ChainRow,
    ClaimRequest,
    ClaimResult,
    Created,
    Deleted,
    Freed,
    JobRow,
    Lease,
    NewJob,
    Settled,
    Settlement,
    TypeStats,
    When,
)
from queuert.records.pauses import Pause, PauseTarget
from queuert.records.retention import KeepPolicy, Pruned, PruneRequest, Retention, Vacuumed
from queuert.records.schedules import DueSchedules, ScheduleLook, ScheduleRow, SeenRelease
from queuert.records.workers import LastHandled, WorkerAbout, WorkerRow

__all__ = ["Placing", "SettlingLast", "StateAdapter", "StateOperations", "SyncStateAdapter"]

Conn = TypeVar("Conn")


class StateOperations(Protocol):
    """The operations, as programs. A sync and an async provider run the same programs."""

    unblocked_at_once: int
    """How many edges `settle` counts down at most: `UNBLOCKED_AT_ONCE`. Tests use smaller
    numbers."""

    statistics: bool
    """Whether what happens to jobs is counted for `history`. True, unless a client was made without
    statistics: then nothing is written for it."""

    parts: tuple[str, ...]
    """What `examine` can compare at a cost that does not depend on ended jobs: names that the
    adapter chooses."""

    full_parts: tuple[str, ...]
    """The rest of what it can compare."""

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
        key, the second finds the first. A key with the scope "any" and a window outlives its chain,
        if that is pruned, until the window ends: then `existing` is None, and `pruned` is True.

        With the scope "waiting", a chain that is found does not begin before the transaction ends.
        Transactions that find it so do not wait for each other. (If they overlap all the time, an
        adapter may store a new chain instead, so that this one can begin.) What `collapse` does
        with the chain is described at `NewJob.collapse`; `replaced` is True if it has the new input
        now. A key of a job with `collapse` is in the call once.

        Raises `JobIdExists` (already stored, or twice in the call), `BlockerNotFound` or
        `JobTypeMismatch` (a blocking chain of another type). Then nothing is stored.
        """
        ...

    def replace_waiting(self, jobs: Sequence[NewJob]) -> Program[list[ChainRow]]:
        """Give chains that this transaction holds (`collapse` "hold") the input, the priority and
        the deadline of these jobs, and their time as "replace" does. Returns the chains.

        `id` and `chain_id` are the id of the chain.
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
        claim. A job with `ALONE_AFTER` losses or more has the ordinal `NOT_BEGUN`, until
        `begin_alone`.

        **Jobs with a limit** are claimed only for types that name the limit (`TypeLimit.limits`),
        and never more of them than `slots`. They come first in the result. The number of running
        jobs of a lane, and the number of begins in its time, never exceed what its rule says,
        whatever other claims and the ends of claims do at the same time. A job begins when it is
        claimed.

        The lanes of a limit take turns by weight. A lane that opens comes at the end of the round,
        or sooner if it has a higher weight than others. Within a lane: priority, scheduled time,
        id. The priority of the queue comes before turns. Between limits, and between them and jobs
        without a limit, the heads compete in the order above. A lane whose limit is `ordered` is
        held by the job that begins, until the job is completed, cancelled, expired or deleted; a
        continuation in the same lane keeps it. What is in a lane of a limit that the request does
        not name is left alone.

        Jobs that are paused are left out. The pauses are read after the claim's turn has come under
        its caps: every claim that begins after a pause was committed obeys it. It is one look at a
        table that is almost always empty.
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

        A claim that ends with an `error`, and is neither `uncounted` nor given back nor expired, is
        a failed attempt: it is stored for `failed_attempts`.

        If a settlement that completes its chain says `discard`, the chain is deleted, unless jobs
        have it as a blocker, or it was started with a key. Then it is completed like any other.
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
        self,
        types: Sequence[str],
        ignored: Sequence[str],
        limit: int,
        error: bytes,
        dead: Sequence[str] = (),
        delays: Mapping[str, Sequence[float]] = NO_DELAYS,
    ) -> Program[list[JobRow]]:
        """Put back running jobs whose lease has expired, oldest lease first, with `error` as their
        last error.

        A job whose handler cannot have begun is put back untouched, as by `give_back`: its ordinal
        is above the horizon of its worker, and the server has not been restarted since that worker
        registered. Without an ordinal, or if the worker is not known, the attempt counts.

        An attempt that counts is stored for `failed_attempts`, as lost, and is one of the `losses`
        of its job. `delays`: for each type, how many seconds a job waits after its first loss, its
        second one, and so on; the last number is for all later ones. With 0, or without a number,
        the job is due as before.

        Only jobs of these types, and none of the ignored ids. Locked rows are skipped. Jobs of the
        `dead` workers are put back, too, although their leases run. Returns the new rows.
        """
        ...

    def begin_alone(self, job_id: str, token: int) -> Program[bool]:
        """Store that the handler of a job whose ordinal is `NOT_BEGUN` begins now. False if the
        claim is lost. Nothing but the claim is locked.
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

        A worker is known to be dead only if its row has the information to find out. If it holds a
        lock, the lock must have been missing for `grace` seconds, counted from the first call that
        noticed, on the same run of the database server. If it is a process of this machine, that
        process must have ended. In all other cases, only the end of its leases shows that it is
        gone.

        A worker that finds its own lock missing is no longer listed by that lock. Rows of workers
        may be changed; locked ones are skipped.
        """
        ...

    def register_worker(
        self, worker_id: str, *, lock_key: int | None = None, horizon: int = 0, about: WorkerAbout | None = None
    ) -> Program[WorkerRow]:
        """Store that a worker is here, or that it is still here, and return its row.

        `lock_key` is the lock that the worker holds by its notify adapter (see
        `NotifyAdapter.hold`). It is stored only if this database sees that it is held. `horizon` is
        the one that the worker knows: a server that crashed may have lost it. A worker that is not
        known yet gets a new row. Otherwise `registered_at` is kept, and the horizon is never
        lowered. `about` is what the worker stores about itself; None keeps what is known. It is
        written only if it has changed. Nothing but that row is locked.
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

        While jobs are still running under its name, its row is kept, without the lock: they can be
        taken back only when their leases end. Such a worker is listed as "dead" until it registers
        again. What `last_handled` knows of its types outlives the row.
        """
        ...

    def clean_workers(self, *, unseen_for: float) -> Program[list[str]]:
        """Delete the rows of workers that have not registered for this many seconds and under whose
        name no job is running. Returns their ids, sorted. Locked rows are skipped. What
        `last_handled` knows of their types outlives the rows.
        """
        ...

    def list_workers(self) -> Program[list[WorkerRow]]:
        """All known workers, sorted by id, with their states and their running jobs counted.

        "dead": that is known (see `dead_workers`), or it has ended and left jobs behind. A worker
        without its lock is also dead once its registration is late (see `overdue_after`). "alive":
        it holds its lock, or it has registered in time and nothing else is known. All others are
        "unknown". Nothing is written or locked.
        """
        ...

    def handled_types(self, types: Sequence[str]) -> Program[list[str]]:
        """Those of the types that a worker which is alive has a handler for, in their order.

        All of them, if a worker that does not store its types is alive: it may have the handlers.
        The cost depends only on the number of workers.
        """
        ...

    def last_handled(self, types: Sequence[str]) -> Program[list[LastHandled | None]]:
        """When and where a worker with a handler for each type was last seen, also if its row is
        gone. None: no worker has ever registered one.
        """
        ...

    def next_available_in(self, types: Sequence[str], queues: Sequence[str] = ()) -> Program[Available]:
        """Seconds until a pending job of these types is due, and whether there are work items for
        `continue_unblocking`. `queues[i]` is the queue of `types[i]`: jobs that are paused are left
        out. Without queues, only pauses of types and of everything count.
        """
        ...

    def pause(
        self,
        target: PauseTarget,
        *,
        until: When | None = None,
        reason: str | None = None,
        by: str | None = None,
        cancel_running: bool = False,
    ) -> Program[Pause]:
        """From the commit on, no claim takes jobs of the target, until then or until `resume`.
        Returns the pause.

        A target that is paused already gets the new values, and keeps its `since`. Targets are
        independent of each other: a job is paused as long as one of them covers it. Nothing but the
        pause itself is locked: claims never wait for it.
        """
        ...

    def resume(self, target: PauseTarget) -> Program[Pause | None]:
        """End the pause of exactly this target. Returns it as it was; None if there was none, or if
        it had ended by itself.
        """
        ...

    def list_pauses(self) -> Program[list[Pause]]:
        """The pauses that have not ended, sorted by scope and name."""
        ...

    def declare_limits(
        self, types: Sequence[str], declared: Sequence[DeclaredLimit], *, alive_for: float
    ) -> Program[list[KnownLimit]]:
        """Store which limits the code of a worker declares. Returns all stored limits that apply to
        one of these types, sorted by name: also those that newer or older code declares.

        Declarations of one limit that differ are kept beside each other. Of those that were seen in
        the last `ALIVE_FOR` seconds, or of all if there are none, the one that was first seen most
        recently applies. One that was last seen longer than `alive_for` seconds ago counts as new
        when it is seen again. So an older worker does not undo what a newer one has declared, and
        going back to older code works. Rows are written in the order of their names.
        """
        ...

    def set_limit(self, name: str, key: str | None, change: Change) -> Program[LimitRow]:
        """Change what applies to a key of a limit, or (None) to all keys without settings of their
        own. Fields that are not given stay as they are. Running jobs go on. Locks no lane: claims
        never wait for it, and those that begin after the commit obey it.
        """
        ...

    def clear_limit(self, name: str, key: str | None) -> Program[bool]:
        """Undo `set_limit` for exactly this key, or for all keys. False: nothing was set."""
        ...

    def get_limit(self, name: str, key: str | None) -> Program[LimitRow]:
        """The state of a key of a limit, or of the limit itself, even if nothing is stored of
        it.
        """
        ...

    def jobs_before(self, job: JobRow) -> Program[int]:
        """How many jobs of its lane that are due come before this one: `COUNTED` at most."""
        ...

    def list_limits(self, limit: int, after: tuple[str, str | None] | None) -> Program[list[LimitRow]]:
        """Limits and their keys, this many after this one, sorted by name and key. A limit itself,
        with the key None, comes before its keys. Listed are keys that have running or due jobs,
        that are closed, or that were changed by `set_limit`.
        """
        ...

    def get_schedules(self, names: Sequence[str], *, lock: bool = False) -> Program[ScheduleLook]:
        """Read schedules, in the order of the names. None for one that does not exist.

        With `lock`, they are locked for update until the transaction ends. One that another
        transaction has locked is not waited for: None.
        """
        ...

    def find_schedule(self, incarnation: int) -> Program[ScheduleRow | None]:
        """The schedule with this incarnation; None if it is gone."""
        ...

    def list_schedules(self, limit: int, after: str | None = None) -> Program[ScheduleLook]:
        """This many schedules after this name, sorted by name."""
        ...

    def due_schedules(self, limit: int, functions: Sequence[str], *, lock: bool = False) -> Program[DueSchedules]:
        """The schedules that are due, sorted by `due_at` and name, at most this many. Those that
        are fired by a function count only if their names are among `functions`.

        If none is due, it is one look at the index of `due_at`. With `lock`, they are locked for
        update until the transaction ends. Those that another transaction has locked are skipped.
        """
        ...

    def save_schedules(self, rows: Sequence[ScheduleRow]) -> Program[list[bool]]:
        """Store schedules, each only if it is as it was when it was read: the stored version is
        that of the row, or there is none and the version is 0. The stored version is one higher.

        Tells for each whether it was stored. `incarnation` and `declared` never change. Rows are
        written in the order of their names. A row that another transaction has written is waited
        for: if that transaction commits, this one is not stored.
        """
        ...

    def delete_schedules(self, names: Sequence[str]) -> Program[list[ScheduleRow]]:
        """Delete schedules, and what is known of their releases. Returns them as they were, sorted
        by name. Unknown ones are skipped. Rows are locked in the order of their names.
        """
        ...

    def see_releases(
        self, declared: Sequence[tuple[str, str]], *, alive_for: float, forget_after: float
    ) -> Program[list[SeenRelease]]:
        """Store that workers of these releases declare these schedules (pairs of schedule and
        release). Returns all releases of these schedules, sorted.

        A release that was last seen longer than `alive_for` seconds ago counts as new: it gets a
        new `first_seen_at`. Other releases of these schedules that were last seen longer than
        `forget_after` seconds ago are deleted. Rows are written in the order of their names.
        """
        ...

    def undeclared_schedules(self, limit: int, *, alive_for: float, after: str | None = None) -> Program[ScheduleLook]:
        """Declared schedules of which no release was seen for `alive_for` seconds, sorted by name:
        this many after this name.
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

    def set_priority(self, job_ids: Sequence[str], priority: int) -> Program[list[JobRow | None]]:
        """Give blocked and pending jobs another priority. Returns the new rows, None for a job with
        another status.
        """
        ...

    def cancel_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Cancelled]:
        """Cancel the current jobs of chains that have not ended, and of failed chains that hold an
        ordered lane. Other chains that have ended are skipped. If one of the ids is not that of a
        chain, nothing is changed, and `missing` names it.

        With `cascade`, also the chains that have a blocked job with one of these as a blocker, and
        so on upward, from ended chains too. The whole set is found first, and then locked at once,
        in the order of all operations. If the set has changed by then, all locks are released, and
        the operation begins again. So it never deadlocks with cancellations of other chains of the
        set, deletions, claims and completions.
        """
        ...

    def repair(
        self, job_id: str, input: bytes, deadline: When | None, lane: str | None, weight: float | None
    ) -> Program[JobRow | None]:
        """Make a job that failed, was cancelled or has expired pending and due now, with another
        input, and the lane and weight of that input. Count attempts from zero. If it held another
        lane, that one goes on.

        Without a new `deadline`, the job loses its own if that has passed. Returns the new row,
        None for a job with another status. The job is locked.
        """
        ...

    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        """Delete chains with all their jobs, blocker edges and keys. Unknown ids are skipped.

        With `cascade`, also delete the chains that their jobs wait (or waited) for, transitively.
        If a job outside the set is blocked, pending, running or failed and has one of them as a
        blocker, nothing is deleted, and `waiting` names these jobs: also a job that
        `continue_unblocking` has not reached yet. The work items of deleted chains are deleted.
        Rows are locked in id order, so that deletions, claims and completions never deadlock.
        """
        ...

    def store_policies(self, policies: Sequence[KeepPolicy]) -> Program[list[str]]:
        """Store how long ended chains of these types are kept. Returns the types whose policy is
        new or has changed, in their order: only these are written. Pruning begins again with their
        first chains.
        """
        ...

    def prune(self, request: PruneRequest) -> Program[Pruned]:
        """Delete chains whose time is over by the stored policies: one bounded step.

        A chain is deleted with all that `delete_chains` deletes, if it has ended and its time is
        over, and if no job outside of what this step deletes needs it (see there). Chains of types
        without a policy are never deleted. Those of a type that is archived are noted for that
        instead: see `take_archive`. A key with the scope "any" and a window outlives the chain,
        until the window ends.

        Three ways lead to chains that are due. (1) The walk: for each type, along the ids of first
        jobs, from where the step before has ended, up to those that are too young by the time in
        their ids. (2) Notes: chains that were not due, not ended, or still needed when the walk
        reached them, with the time at which to look again. (3) The lap: along all first jobs, in
        the same way, whatever their age, for what appeared behind the walk and for ids that do not
        contain their time.

        The progress is stored with the deletions. There is one step at a time in the database: any
        other one returns at once, with `busy`. Locked rows are skipped: the step waits for nothing,
        and what it has to skip is noted. Its cost does not depend on how much is kept.
        """
        ...

    def retention(self) -> Program[Retention]:
        """The stored policies, sorted by type, and how far pruning is."""
        ...

    def waiting_to_archive(self, types: Sequence[str]) -> Program[list[str]]:
        """Those of the types with chains that `prune` has noted to be archived, sorted."""
        ...

    def take_archive(self, type_name: str, limit: int) -> Program[list[ChainToArchive]]:
        """Delete up to `limit` chains of a type that `prune` has noted to be archived, in the
        transaction of the caller. Returns them as they were, with all their jobs.

        The rules are those of `prune`: chains that are no longer due, that are needed, or whose
        rows are locked, are left, and noted to be looked at again. If another transaction has taken
        chains of the type and has not ended, there are none.
        """
        ...

    def store_archive(self, rows: Sequence[ArchiveRow]) -> Program[None]:
        """Append to the archive, in the transaction of the caller. `archived_at` is now."""
        ...

    def get_archived(self, ids: Sequence[str]) -> Program[list[ArchiveRow | None]]:
        """What the archive has of these chains; None where it has nothing."""
        ...

    def archive_failed(self, type_name: str, error: str | None) -> Program[None]:
        """Store why chains of the type could not be archived, or None: they could."""
        ...

    def tend_archive(self) -> Program[bool]:
        """Prepare the archive for the next month, and delete whole months that are older than every
        archived type keeps. It waits for no lock for long: it is called again and again. Returns
        whether there is more to delete.
        """
        ...

    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[Listed[JobRow]]:
        """Jobs in id order. Sort key: the job's id.

        If `where.by_chain`: chain by chain, in the order of their ids. Sort key: the chain's id, a
        slash, and the chain index as a decimal number.

        A page reads a bounded number of completed jobs: see `PageRequest.examine`. Which rows are
        read depends on the indexes of the adapter.
        """
        ...

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[Listed[ChainRow]]:
        """Chains. A chain has the type and the creation time of its first job, and the status of
        its current job.

        Sort key: the chain's id. If `where.by_current`: the current job's id, because the indexes
        for these filters are sorted by it. The bound is that of `list_jobs`.
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

    def failed_attempts(self, job_id: str) -> Program[list[FailedAttempt]]:
        """The attempts of a job that failed or were lost, the oldest first: the last `KEPT` of
        them. They are deleted with the job.
        """
        ...

    def circumstances(self, chain_id: str) -> Program[Circumstances | None]:
        """Everything that decides whether a claim would take the chain's current job, read in one
        snapshot. None for an id that does not exist.

        Locks nothing. The cost depends on the numbers of workers, of running jobs and of the job's
        own blockers, and never on other jobs: each list is bounded, and found by an index.
        """
        ...

    def examine(self, part: str, after: tuple[str, ...] | None, limit: int, seconds: float) -> Program[Look]:
        """Compare rows of one part with the rest of the data, in one snapshot, and return what does
        not agree.

        At most `limit` rows, in the order of an index, and for at most about this many seconds: a
        snapshot must not get old. `after` is where the call before ended; None: begin. Each call
        reads one row at least. Locks nothing and writes nothing.

        What other transactions have not committed is not seen, and what they commit is seen as a
        whole. So there is never anything in `damages` that the operations of this port have done.
        Jobs that `continue_unblocking` still has to free are not damaged.
        """
        ...

    def repair_damage(self, damage: Damage) -> Program[RepairOutcome]:
        """Repair what `examine` has found, if it is still so.

        It is looked at again, under the locks that other operations need to change it. They are
        taken in the order of all operations, and never waited for: "busy" if one is held by another
        transaction. What cannot be proven is not changed: the kinds `blocker_missing`,
        `broken_chain` and `wrong_key` are never repaired ("gone").
        """
        ...

    def surroundings(self, *, full: bool) -> Program[Surroundings]:
        """What is known of the database itself. Also for tables of another version: it must not
        raise because of them.

        With `full`, it may read the whole database, to find out whether it is intact.
        """
        ...

    def record_audit(self, entries: Sequence[NewAudit], kept: float = KEPT) -> Program[None]:
        """Store who did what, with the time by the database's clock.

        Removes some of the oldest records, if they are older than `kept` seconds: `FORGOTTEN`, and
        as many as are added, at most. It waits for no lock.
        """
        ...

    def list_audit(self, limit: int, after: int | None, chain_id: str | None = None) -> Program[list[AuditRecord]]:
        """What was recorded, the latest first: this many records, beginning after the record with
        the id `after`. With `chain_id`, only those about this chain.
        """
        ...

    def stats(self, *, limit: int | None = None) -> Program[list[TypeStats]]:
        """Open and failed jobs by type, sorted by type name.

        The cost does not depend on completed jobs. With a limit, 1 or more, at most this many jobs
        of each type and status are counted. The cost then depends only on the limit, and on the
        numbers of types and of running jobs. Of a type whose ready jobs have more different
        priorities than that, the oldest one may be missed.
        """
        ...

    def history(self, step: int, since: datetime | float, type_name: str | None = None) -> Program[HistoryLook]:
        """What has happened to jobs since this moment, or in the last `since` seconds, in steps of
        `step` seconds. Steps begin at multiples of their length since 1970. The first step is the
        one that contains the moment. In one snapshot.

        Each operation counts what it does, in its own transaction. A claim counts "begun", in the
        minute of the claim, timed by how long the job was due. A settlement counts what became of
        the job ("retried" if it is pending again), timed by how long the claim has lasted, if there
        was one. `cancel_chains` counts "cancelled", `retry` and `repair` "retried", `reap`
        "lost" for attempts that were lost, `delete_chains` "deleted" for jobs that were running.
        A claim that is given back or that was not begun (see `reap`, `release`) is taken back in
        the minute in which it was counted.

        What is timed is counted in a bucket of `BOUNDS`, and again, without seconds, in one of
        `FINE_BOUNDS`: see `queuert.records.history`.

        So "begun", less all others that are timed, is the number of jobs that are running now.
        Operations that do this at the same time must not wait for each other because of it.
        """
        ...

    def roll_up(self, limit: int) -> Program[bool]:
        """Merge what was counted into minutes, minutes that are old into hours, and these into
        days, and delete the oldest days: see `queuert.records.history`. One bounded step, of about
        this many rows. True: there is more to do.

        One process does it at a time; False if another one is doing it. It locks nothing that other
        operations need. What `history` returns does not change, but for steps that are no longer
        kept.
        """
        ...

    def migrate(self) -> Program[list[int]]:
        """Create or update the tables. Returns the versions applied. Raises `SchemaTooNew`.

        It is safe to run in several processes at once, and after a process was killed in the
        middle.
        """
        ...

    def vacuum(self) -> Program[Vacuumed]:
        """Return free space to the file system, as far as possible while other processes work, and
        tell what that gained.
        """
        ...


class SettlingLast(Protocol):
    """Optional part of the operations: settling a claim in one message with COMMIT."""

    def settle_last(self, settlement: Settlement) -> Any | None:
        """A command that applies a settlement as the last one of its transaction (see
        `queuert.ports.provider.CommittingWith`). None: this one can only be settled by `settle`.

        The claim is locked by `hold`. The answer is not read. So the command must fail unless the
        settlement takes effect in full, its continuation is ready, and no dependents are freed.
        """
        ...


class Placing(Protocol):
    """Optional part of the operations, for channels without wake hints."""

    def places(self, worker_id: str, types: Sequence[str]) -> Program[dict[str, tuple[int, int]]]:
        """For each of these types that workers have a handler for: how many of those workers come
        before this one, by id, and how many there are. Workers that are gone may be counted for a
        while.
        """
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
        self.clock: Clock | None = None  # the virtual time of a database for tests

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
        self.clock: Clock | None = None  # the virtual time of a database for tests

    def close(self) -> None:
        """Close the provider."""
        self.provider.close()
