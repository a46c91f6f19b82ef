"""What a user writes to have an adapter checked."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from queuert.conformance.checks import skip
from queuert.conformance.state.driver import AnyStateAdapter


class StateHarness:
    """A storage under test. Subclass it; give the adapter to `__init__`, and override the hooks that you can offer.

    A harness serves one case. `reset` comes first, `dispose` last. Hooks that are not offered make the cases that
    need them skip, with the reason in the report.
    """

    single_writer: bool = False
    """True if an open transaction keeps every other one that writes waiting, as in SQLite."""

    def __init__(self, adapter: AnyStateAdapter) -> None:
        self.adapter = adapter

    async def reset(self) -> None:
        """Leave the storage empty; it is migrated afterwards. Needed where storage outlives a harness."""

    async def dispose(self) -> None:
        """Release what the harness opened beyond its adapters; those are closed before."""

    async def second(self) -> AnyStateAdapter:
        """Another adapter on the same storage, with connections of its own. It is closed after the case."""
        skip("the harness offers no second()")

    async def advance(self, seconds: float) -> None:
        """Move the database's clock. Without this hook, cases wait for a fraction of a second instead."""
        raise NotImplementedError

    def poison(self, connection: Any) -> Awaitable[None] | None:  # noqa: ARG002
        """Let a statement fail in the open transaction, and swallow the driver's error.

        Called on the thread that uses the connection; may be an async function.
        """
        skip("the harness offers no poison()")
