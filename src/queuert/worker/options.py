"""A worker's options, checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from queuert.worker.backoff import Backoff
from queuert.worker.claiming import ClaimPolicy
from queuert.worker.handlers import HandlerPlan


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

    @property
    def renew_interval(self) -> float:
        """The shortest of all handlers'."""
        return min(plan.renew_interval for plan in self.plans.values())

    @property
    def reap_interval(self) -> float:
        return min(self.poll_interval, self.renew_interval)
