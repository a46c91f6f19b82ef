"""A worker's options, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queuert.base.backoff import Backoff
from queuert.features.schedules.declared import Declaration
from queuert.ports.provider import TimeLimit
from queuert.worker.handlers.registry import HandlerPlan
from queuert.worker.policy.claiming import ClaimPolicy

SHORTEST_LIMIT = 1.0
"""Seconds for a statement, unless even that is more than half of the lease. A busy server may take
long for a small thing."""


@dataclass(frozen=True)
class WorkerOptions:
    plans: Mapping[str, HandlerPlan]
    policy: ClaimPolicy
    concurrency: int
    prefetch: int
    poll_interval: float
    recovery_backoff: Backoff
    recovery_max_attempts: int
    """0: no limit."""
    shutdown_timeout: float
    coalesce_notifies: int
    cancel_on_abort: bool
    release: str | None = None
    schedules: Mapping[str, Declaration] = field(default_factory=dict[str, Declaration])
    """What the worker declares, by name."""

    @property
    def renew_interval(self) -> float:
        """The shortest of all handlers'."""
        return min(plan.renew_interval for plan in self.plans.values())

    @property
    def limit(self) -> TimeLimit:
        """How long a statement of the worker's own may take: well under the shortest lease. Two
        of them in a row still leave time for a third.
        """
        lease = min(plan.lease for plan in self.plans.values())
        return TimeLimit(max(lease / 4, min(SHORTEST_LIMIT, lease / 2)))

    @property
    def reap_interval(self) -> float:
        return min(self.poll_interval, self.renew_interval)
