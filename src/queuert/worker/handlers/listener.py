"""Callbacks for the events of a worker's attempts. By default they do nothing."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any

from queuert.records.model import Settlement
from queuert.worker.base.abort import AbortReason
from queuert.worker.handlers.claim import Claim

# Listeners override what they need.


class AttemptListener:
    listens = False
    """Whether a listener overrides anything. If not, the calls that every job would make are left
    out.
    """

    def started(self, claim: Claim) -> None:
        """Its handler is about to be called.

        Called in the handler's own task, so that context variables set here apply to the handler.
        """

    def handler_ended(self, claim: Claim) -> None:
        """Its handler has ended."""

    def aborting(self, claim: Claim, reason: AbortReason) -> None:
        """It is about to be aborted, perhaps not for the first time."""

    def renewed(self, claims: Iterable[Claim]) -> None:
        """Their leases were renewed."""

    def settled(self, claim: Claim, settlement: Settlement) -> None:
        """It was settled."""

    def not_settled(self, claim: Claim, settlement: Settlement, error: Exception) -> None:
        """It could not be put back, because of this error: the lease is left to end."""

    def released(self, claim: Claim) -> Coroutine[Any, Any, None] | None:
        """The worker is done with the claim: it was settled, or had already ended.

        Returns what is left to do.
        """

    def dropped(self, claim: Claim) -> None:
        """Its handler has ended, and the worker has stopped before it was settled: the lease is
        left to end.
        """
