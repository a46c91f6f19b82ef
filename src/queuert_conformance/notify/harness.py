"""The class to write for a check of a notify adapter or provider."""

from __future__ import annotations

from queuert.ports.notify import NotifyAdapter
from queuert_conformance.checks import skip


class NotifyHarness:
    """A channel under test. Subclass it, or pass the adapter to it; override what you can offer.

    For a provider, pass `BroadcastNotify(MyProvider(…), prefix=…)`, with a new prefix for each
    harness. A harness is used for one case. `reset` is called first, `dispose` last. Cases that
    need a method which you do not override are skipped, with the reason in the report.
    """

    delivers: bool = True
    """False for an adapter that delivers nothing."""

    hints: bool = True
    """False for an adapter without wake hints. It accepts any budget, and every listener may
    wake."""

    def __init__(self, adapter: NotifyAdapter) -> None:
        self.adapter = adapter

    async def reset(self) -> None:
        """Remove the budgets of wake hints. Needed if they outlive a harness."""

    async def dispose(self) -> None:
        """Release what the harness opened. Its adapters are already closed."""

    async def second(self) -> NotifyAdapter:
        """Another adapter on the same channel, like another process.

        It is closed after the case.
        """
        skip("the harness has no second()")

    async def sync_adapter(self) -> NotifyAdapter:
        """Another adapter, for a sync client: it is used on the event loop of another thread.

        It is closed after the case.
        """
        return await self.second()
