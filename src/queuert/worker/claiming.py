"""What a worker may claim at this moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from queuert.errors import InvalidArgument
from queuert.jobs.registry import Registry
from queuert.model import (
    DEFAULT_PRIORITY,
    MAX_NAME_LENGTH,
    PRIORITY_RANGE,
    ClaimRequest,
    QueueLimit,
    TypeLimit,
    check_text,
)
from queuert.worker.claim import Claim
from queuert.worker.handlers import HandlerPlan
from queuert.worker.horizon import Ordinals


@dataclass(frozen=True)
class Queue:
    """A named group of job types, and how a worker serves it: `Worker(…, queues=[Queue("mail")])`.

    Args:
        name: The queue's name, as in `class SendMail(…, queue="mail")` or
            `handles(…, queue="mail")`.
        priority: The queue with the lowest number is served first (default: 100).
        max_concurrency: How many jobs of this queue may run at once in all workers together. 0
            pauses the queue, None means no limit (default: None).
    """

    name: str
    priority: int = DEFAULT_PRIORITY
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        check_text(self.name, "a queue's name", MAX_NAME_LENGTH)
        if type(self.priority) is not int or not PRIORITY_RANGE[0] <= self.priority <= PRIORITY_RANGE[1]:
            raise InvalidArgument(f"queue {self.name!r}: priority must be an integer, got {self.priority!r}")
        check_cap(self.max_concurrency, f"queue {self.name!r}: max_concurrency")


def check_cap(cap: int | None, what: str) -> None:
    if cap is not None and (type(cap) is not int or cap < 0):
        raise InvalidArgument(f"{what} must be 0 (paused), a positive number, or None (no limit), got {cap!r}")


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
    ) -> None:
        self._worker_id = worker_id
        self.concurrency = concurrency
        self._most_at_once = concurrency + prefetch
        self._max_batch = max_claim_batch
        self._max_claims = max_claim_per_worker
        self._cluster_cap = cluster_cap
        self.ordinals = Ordinals()
        self._queues = _served(plans, jobs, queues)
        self.types: tuple[str, ...] = tuple(plan.name for _, plans, _ in self._queues for plan in plans)
        self.limited = cluster_cap is not None or any(
            queue.max_concurrency is not None or any(plan.concurrency is not None for plan in plans)
            for queue, plans, _ in self._queues
        )
        """Whether there is a limit besides the slots. Then an empty claim does not mean that no job
        is ready."""
        if not self.limited:
            self._fixed_queues = tuple(self._queue_limits({}))

    def request(self, claims: Collection[Claim], active: int, ahead: int) -> ClaimRequest | None:
        """A claim for the free slots and as many `ahead`, or None if there is no room.

        `active`: how many are running, or are claimed ahead already.
        """
        limit = self.concurrency + ahead - active
        if self._max_batch is not None:
            limit = min(limit, self._max_batch)
        if self._max_claims is not None:
            limit = min(limit, self._max_claims - len(claims))
        if limit <= 0:
            return None
        queues = tuple(self._queue_limits(_count(claims))) if self.limited else self._fixed_queues
        return ClaimRequest(self._worker_id, limit, queues, self._cluster_cap) if queues else None

    def _queue_limits(self, claimed: Mapping[str, int]) -> Iterable[QueueLimit]:
        # One more than can be claimed: a type without its own limit must never seem to have reached
        # one.
        unlimited = self._most_at_once + 1
        for queue, plans, members in self._queues:
            types = tuple(
                TypeLimit(plan.name, room, plan.lease)
                for plan in plans
                if (room := unlimited if plan.concurrency is None else plan.concurrency - claimed.get(plan.name, 0)) > 0
            )
            if types and queue.max_concurrency != 0:
                yield QueueLimit(queue.name, queue.priority, types, members, queue.max_concurrency)


def _served(
    plans: Mapping[str, HandlerPlan], jobs: Registry, queues: Sequence[Queue | str] | None
) -> list[tuple[Queue, list[HandlerPlan], tuple[str, ...]]]:
    """Each queue that is served, its handlers here, and all its types (a cap counts those of other
    workers too).
    """
    members: dict[str, list[str]] = {}
    for job_type in jobs:
        plan = plans.get(job_type.name)
        members.setdefault(plan.queue if plan is not None else job_type.queue, []).append(job_type.name)
    if queues is None:
        wanted = [Queue(name) for name in dict.fromkeys(plan.queue for plan in plans.values())]
    else:
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
