"""The adapters: operations and providers, put together."""

from __future__ import annotations

from queuert.adapters.memory.connection import MemoryConnection
from queuert.adapters.memory.operations import MemoryOperations
from queuert.adapters.memory.provider import AsyncMemoryProvider, MemoryProvider
from queuert.adapters.memory.store import Clock, MemoryStore
from queuert.errors import InvalidArgument
from queuert.ports.state import StateAdapter, SyncStateAdapter


def memory_state(store: MemoryStore | None = None, clock: Clock | None = None) -> StateAdapter[MemoryConnection]:
    """Storage in memory, for an async client.

    Args:
        store: The data. Adapters that share a store share their jobs (default: a new one).
        clock: The clock of a new store, for tests (default: the host's clock).
    """
    store = _store(store, clock)
    return StateAdapter(MemoryOperations(), AsyncMemoryProvider(store), MemoryProvider(store))


def sync_memory_state(
    store: MemoryStore | None = None, clock: Clock | None = None
) -> SyncStateAdapter[MemoryConnection]:
    """Storage in memory, for a sync client.

    Args:
        store: The data. Adapters that share a store share their jobs (default: a new one).
        clock: The clock of a new store, for tests (default: the host's clock).
    """
    return SyncStateAdapter(MemoryOperations(), MemoryProvider(_store(store, clock)))


def _store(store: MemoryStore | None, clock: Clock | None) -> MemoryStore:
    if store is None:
        return MemoryStore(clock)
    if clock is not None:
        raise InvalidArgument("a store already has a clock: pass either store= or clock=")
    return store
