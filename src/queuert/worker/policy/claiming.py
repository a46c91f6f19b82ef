"""What a worker may claim at this moment."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from queuert.base.own_types import OWN_QUEUE
from queuert.errors import InvalidArgument
from queuert.features.bulk.jobs import OWN_NAMES
from queuert.jobs.limits import declared_limits
from queuert.jobs.queue import Queue
from queuert.jobs.registry import Registry
from queuert.records.limits import KnownLimit
from queuert.records.model import ClaimRequest, QueueLimit, TypeLimit, new_token
from queuert.records.workers import WorkerQueue, WorkerType
from queuert.worker.handlers.claim import Claim
from queuert.worker.handlers.registry import HandlerPlan
from queuert.worker.policy.horizon import Ordinals


class ClaimPolicy:
    """The limits of one worker. Makes the request for the jobs that it has room for."""

    def __init__(
        self,
        worker_id: str,
        plans: Mapping[str, HandlerPlan],
        jobs: Registry,
        *,
        queues: Sequence[Queue | str] | None,
        concurrency: int,
        prefetch: int,
        max_claim_batch: int | None,
        max_claim_per_worker: int | None,
        cluster_cap: int | None,
        new_token: Callable[[], int] = new_token,
    ) -> None:
        self._worker_id = worker_id
        self.concurrency = concurrency
        self._most_at_once = concurrency + prefetch
        self._max_batch = max_claim_batch
        self._max_claims = max_claim_per_worker
        self.cluster_cap = cluster_cap
        self.ordinals = Ordinals()
        self.new_token = new_token
        """The token of each claim."""
        self.declared = declared_limits(jobs)
        """The limits of the job types that this code knows."""
        self._limits: Mapping[str, tuple[str, ...]] = {}
        """Type → the limits that its jobs may be stored with."""
        self.by_key = False
        """Whether there are limits by key. Then the end of a job may let another one begin."""
        self._only_by_key = False
        """All types have limits by key."""
        self._queues = _served(plans, jobs, queues)
        self.types: tuple[str, ...] = tuple(plan.name for _, plans, _ in self._queues for plan in plans)
        self.queues: tuple[str, ...] = tuple(queue.name for queue, plans, _ in self._queues for _ in plans)
        """The queue of each type."""
        self.limited = cluster_cap is not None or any(
            queue.max_concurrency is not None or any(plan.concurrency is not None for plan in plans)
            for queue, plans, _ in self._queues
        )
        """Whether there is a limit besides the slots. Then an empty claim does not mean that no job
        is ready."""
        if not self.limited:
            self._fixed_queues = tuple(self._queue_limits({}))

    def know_limits(self, known: Sequence[KnownLimit]) -> None:
        """The limits that are stored: also those that other code declares for these types."""
        found: dict[str, tuple[str, ...]] = {}
        for limit in known:
            for name in limit.types:
                found[name] = (*found.get(name, ()), limit.name)
        if found != self._limits:
            self._limits = found
            self._only_by_key = all(name in found for name in self.types)
            self.by_key = bool(found)
            if not self.limited:
                self._fixed_queues = tuple(self._queue_limits({}))

    def request(self, claims: Collection[Claim], active: int, ahead: int) -> ClaimRequest | None:
        """A claim for the free slots and as many `ahead`, or None if there is no room.

        `active`: how many are running, or are claimed ahead already.
        """
        # Jobs with a limit by key are not claimed ahead: others may begin instead of them.
        slots = max(0, self.concurrency - active)
        limit = slots if self._only_by_key else self.concurrency + ahead - active
        if self._max_batch is not None:
            limit = min(limit, self._max_batch)
        if self._max_claims is not None:
            limit = min(limit, self._max_claims - len(claims))
        if limit <= 0:
            return None
        queues = tuple(self._queue_limits(_count(claims))) if self.limited else self._fixed_queues
        return ClaimRequest(self._worker_id, limit, queues, self.cluster_cap, slots=slots) if queues else None

    def described(self) -> tuple[WorkerQueue, ...]:
        """The queues as other processes see them, and the library's own types."""
        described = [
            WorkerQueue(
                queue.name,
                tuple(WorkerType(plan.name, plan.concurrency) for plan in plans),
                queue.priority,
                queue.max_concurrency,
                () if queue.max_concurrency is None else members,
            )
            for queue, plans, members in self._queues
        ]
        return (*described, WorkerQueue(OWN_QUEUE, tuple(map(WorkerType, OWN_NAMES))))

    def _queue_limits(self, claimed: Mapping[str, int]) -> Iterable[QueueLimit]:
        # One more than can be claimed, so that a type without its own limit never seems to have
        # reached one.
        unlimited = self._most_at_once + 1
        for queue, plans, members in self._queues:
            types = tuple(
                TypeLimit(plan.name, room, plan.lease, self._limits.get(plan.name, ()))
                for plan in plans
                if (room := unlimited if plan.concurrency is None else plan.concurrency - claimed.get(plan.name, 0)) > 0
            )
            if types and queue.max_concurrency != 0:
                yield QueueLimit(queue.name, queue.priority, types, members, queue.max_concurrency)


def _served(
    plans: Mapping[str, HandlerPlan], jobs: Registry, queues: Sequence[Queue | str] | None
) -> list[tuple[Queue, list[HandlerPlan], tuple[str, ...]]]:
    """Each queue that is served, its handlers here, and all its types that are known here (a cap
    uses them to count the jobs that older versions run).
    """
    members: dict[str, list[str]] = {}
    for job_type in jobs:
        plan = plans.get(job_type.name)
        members.setdefault(plan.queue if plan is not None else job_type.queue, []).append(job_type.name)
    if queues is None:
        wanted = [Queue(name) for name in dict.fromkeys(plan.queue for plan in plans.values())]
    else:
        if isinstance(queues, str) or not isinstance(queues, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument(f"queues takes a list of names and Queue objects, got {queues!r}")
        wanted = [queue if isinstance(queue, Queue) else Queue(queue) for queue in queues]
        if not wanted:
            raise InvalidArgument("queues=[] serves nothing: name a queue, or leave it out to serve all")
        names = [queue.name for queue in wanted]
        if len(set(names)) < len(names):
            raise InvalidArgument(f"a queue is named twice: {', '.join(names)}")
    served: list[tuple[Queue, list[HandlerPlan], tuple[str, ...]]] = []
    for queue in wanted:
        mine = [plan for plan in plans.values() if plan.queue == queue.name]
        if not mine:
            raise InvalidArgument(f"no handler of this worker belongs to the queue {queue.name!r}")
        served.append((queue, mine, tuple(members[queue.name])))
    return served


def _count(claims: Iterable[Claim]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for claim in claims:
        counts[claim.plan.name] = counts.get(claim.plan.name, 0) + 1
    return counts
