"""The operations of the state port, one module per family. They are the specification of the port.

Each operation is a plain loop over the tables. Where another adapter gives another answer, one of
the two has a bug. There is one writer at a time, so nothing here locks rows or skips locked rows,
and `lock=True` changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuert.adapters.memory.command import read
from queuert.adapters.memory.operations.archiving import Archiving
from queuert.adapters.memory.operations.auditing import Auditing
from queuert.adapters.memory.operations.cancelling import Cancelling
from queuert.adapters.memory.operations.claiming import Claiming
from queuert.adapters.memory.operations.counting import Counting
from queuert.adapters.memory.operations.creating import Creating
from queuert.adapters.memory.operations.deleting import Deleting
from queuert.adapters.memory.operations.examining import Examining
from queuert.adapters.memory.operations.explaining import Explaining
from queuert.adapters.memory.operations.limiting import Limiting
from queuert.adapters.memory.operations.pausing import Pausing
from queuert.adapters.memory.operations.pruning import Pruning
from queuert.adapters.memory.operations.reading import Reading
from queuert.adapters.memory.operations.releasing import Releasing
from queuert.adapters.memory.operations.scheduling import Scheduling
from queuert.adapters.memory.operations.settling import Settling
from queuert.adapters.memory.operations.workers import Workers
from queuert.adapters.memory.tables import Tables
from queuert.ports.state import StateOperations
from queuert.records.retention import Vacuumed


class MemoryOperations(
    Creating,
    Claiming,
    Releasing,
    Settling,
    Cancelling,
    Deleting,
    Reading,
    Explaining,
    Examining,
    Workers,
    Pausing,
    Limiting,
    Auditing,
    Scheduling,
    Pruning,
    Archiving,
    Counting,
):
    """The reference for all other state adapters."""

    def stores_id(self, job_id: str) -> bool:  # noqa: ARG002
        return True

    @read
    def migrate(self, tables: Tables) -> list[int]:  # noqa: ARG002
        """There is no schema."""
        return []

    @read
    def vacuum(self, tables: Tables) -> Vacuumed:  # noqa: ARG002
        """Python frees the memory by itself."""
        return Vacuumed(0, 0)


if TYPE_CHECKING:
    _: type[StateOperations] = MemoryOperations
