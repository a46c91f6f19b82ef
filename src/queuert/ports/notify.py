"""The notify port: broadcasts that wake workers and waiters early.

Losing a message is harmless: workers and waiters poll too. Three pairs of publish and listen: a job of a type can
be claimed, a chain has ended (or was deleted), a running job has been taken from its worker.

A listen call returns a dispose function; the subscription is active once the call returns. Callbacks are called
synchronously, with one string, perhaps from another thread: they must be quick, thread-safe and must not raise.
Any number of callbacks share one underlying listener.

A listener that could hear nothing for a while, because its connection was lost, calls every callback with `MISSED` once
it is back: nobody knows what was published meanwhile, so whoever listens looks for himself.

Wake hints keep a crowd of idle workers from all asking the database for one job: publishers add to a budget per
type before they publish, and a worker that is able to claim takes one from it first.

After `close()` (idempotent; it ends all listeners) publishing, listening and hints raise `ClientClosed`;
dispose functions do nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

Callback = Callable[[str], None]
Dispose = Callable[[], Awaitable[None]]
SyncDispose = Callable[[], None]

MISSED = ""
"""Stands for whatever may have been published. No type, chain or job is called so."""


class NotifyAdapter(Protocol):
    async def provide_wake_hints(self, counts: Mapping[str, int]) -> None:
        """Add to the budget of each type. Budgets of concurrent publishers add up."""
        ...

    async def consume_wake_hint(self, type_name: str) -> bool:
        """Take one from the type's budget. True if there was one, or if no budget is known; False if it is used up."""
        ...

    async def job_scheduled(self, types: Sequence[str]) -> None: ...

    async def chain_completed(self, chain_ids: Sequence[str]) -> None: ...

    async def ownership_lost(self, job_ids: Sequence[str]) -> None: ...

    async def listen_job_scheduled(self, callback: Callback) -> Dispose: ...

    async def listen_chain_completed(self, callback: Callback) -> Dispose: ...

    async def listen_ownership_lost(self, callback: Callback) -> Dispose: ...

    async def close(self) -> None: ...


class SyncNotifyAdapter(Protocol):
    """The same for a sync client. It has no workers of its own, so it only publishes and waits for chains.

    The client publishes in a thread, to be rid of a channel that hangs. Adapters whose publishing waits for nobody
    may save it that with an attribute `immediate = True`.
    """

    def provide_wake_hints(self, counts: Mapping[str, int]) -> None: ...

    def job_scheduled(self, types: Sequence[str]) -> None: ...

    def chain_completed(self, chain_ids: Sequence[str]) -> None: ...

    def ownership_lost(self, job_ids: Sequence[str]) -> None: ...

    def listen_chain_completed(self, callback: Callback) -> SyncDispose: ...

    def close(self) -> None: ...
