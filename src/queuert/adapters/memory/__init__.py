"""Jobs in memory: for tests, for trying things out, and as the model that every other state adapter is compared with.

A `MemoryStore` holds the data. Any number of adapters, async and sync, may share one store, from several event
loops and threads at once. There is a single writer at a time; readers never wait and see committed data only.
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
