"""Jobs in memory: for tests, for trying things out, and as the reference for all state adapters.

A `MemoryStore` holds the data. Any number of adapters, async and sync, may share one store, from
several event loops and threads at once. There is one writer at a time. Readers never wait, and see
committed data only.
"""

from queuert.adapters.memory.adapter import memory_state, sync_memory_state
from queuert.adapters.memory.connection import MemoryConnection
from queuert.adapters.memory.operations import MemoryOperations
from queuert.adapters.memory.provider import AsyncMemoryProvider, MemoryProvider
from queuert.adapters.memory.store import MemoryStore

__all__ = [
    "AsyncMemoryProvider",
    "MemoryConnection",
    "MemoryOperations",
    "MemoryProvider",
    "MemoryStore",
    "memory_state",
    "sync_memory_state",
]
