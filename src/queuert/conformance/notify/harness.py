"""What a user writes to have a notify adapter checked."""

from __future__ import annotations

from queuert.conformance.checks import skip
from queuert.ports.notify import NotifyAdapter, SyncNotifyAdapter


class NotifyHarness:
    """A channel under test. Subclass it, or pass the adapter to it as it is; override what you can offer.

    A harness serves one case. `reset` comes first, `dispose` last. What is not offered makes cases skip, with the
    reason in the report.
    """

    delivers: bool = True
    """False for an adapter that tells nobody anything."""

    hints: bool = True
    """False for an adapter without wake hints: it takes any budget, and every listener may wake."""

    def __init__(self, adapter: NotifyAdapter) -> None:
        self.adapter = adapter

    async def reset(self) -> None:
        """Forget budgets of wake hints. Needed where they outlive a harness."""

    async def dispose(self) -> None:
        """Release what the harness opened beyond its adapters; those are closed before."""

    async def second(self) -> NotifyAdapter:
        """Another adapter on the same channel, as in another process. It is closed after the case."""
        skip("the harness offers no second()")

    async def sync_adapter(self) -> SyncNotifyAdapter:
        """A sync adapter on the same channel. It is closed after the case."""
        skip("the harness offers no sync_adapter()")
