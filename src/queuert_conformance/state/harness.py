"""The class to write for a check of a state adapter."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from queuert_conformance.checks import skip
from queuert_conformance.state.driver import AnyStateAdapter


class StateHarness:
    """A storage under test. Subclass it, pass the adapter to `__init__`, and override the hooks
    that you can offer.

    A harness is used for one case. `reset` is called first, `dispose` last. Cases that need a hook
    which you do not override are skipped, with the reason in the report.
    """

    single_writer: bool = False
    """True if an open transaction makes all other writers wait, as in SQLite."""

    def __init__(self, adapter: AnyStateAdapter) -> None:
        self.adapter = adapter

    async def reset(self) -> None:
        """Empty the storage.

        It is migrated afterwards. Needed if the storage outlives a harness.
        """

    async def dispose(self) -> None:
        """Release what the harness opened. Its adapters are already closed."""

    async def second(self) -> AnyStateAdapter:
        """Another adapter on the same storage, with its own connections.

        It is closed after the case.
        """
        skip("the harness has no second()")

    async def advance(self, seconds: float) -> None:
        """Move the database's clock.

        Without this hook, cases wait for a fraction of a second instead.
        """
        raise NotImplementedError

    def poison(self, connection: Any) -> Awaitable[None] | None:  # noqa: ARG002
        """Make a statement fail in the open transaction, and swallow the driver's error.

        It is called on the thread that uses the connection, and may be an async function.
        """
        skip("the harness has no poison()")
