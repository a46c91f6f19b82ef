"""The adapters: operations and providers, put together."""

from __future__ import annotations

from queuert.adapters.memory.connection import MemoryConnection
from queuert.adapters.memory.operations import MemoryOperations
from queuert.adapters.memory.provider import AsyncMemoryProvider, MemoryProvider
from queuert.adapters.memory.store import Clock, MemoryStore
from queuert.errors import InvalidArgument
from queuert.ports.state import StateAdapter, SyncStateAdapter


def memory_state(store: MemoryStore | None = None, clock: Clock | None = None) -> StateAdapter[MemoryConnection]:
    """State in memory for an async client: in `store`, or in a new one with this clock."""
    store = _store(store, clock)
    return StateAdapter(MemoryOperations(), AsyncMemoryProvider(store), MemoryProvider(store))


def sync_memory_state(
    store: MemoryStore | None = None, clock: Clock | None = None
) -> SyncStateAdapter[MemoryConnection]:
    """State in memory for a sync client: in `store`, or in a new one with this clock."""
    return SyncStateAdapter(MemoryOperations(), MemoryProvider(_store(store, clock)))


def _store(store: MemoryStore | None, clock: Clock | None) -> MemoryStore:
    if store is None:
        return MemoryStore(clock)
    if clock is not None:
        raise InvalidArgument("a store has a clock already: pass either store= or clock=")
    return store
