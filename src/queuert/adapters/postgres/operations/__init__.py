"""The operations of the state port, one module and one class per family; here they become one
class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuert.adapters.postgres.operations.archiving import Archiving
from queuert.adapters.postgres.operations.auditing import Auditing
from queuert.adapters.postgres.operations.claiming import Claiming
from queuert.adapters.postgres.operations.counting import Counting
from queuert.adapters.postgres.operations.creating import Creating
from queuert.adapters.postgres.operations.examining import Examining
from queuert.adapters.postgres.operations.explaining import Explaining
from queuert.adapters.postgres.operations.limiting import Limiting
from queuert.adapters.postgres.operations.listing import Listing
from queuert.adapters.postgres.operations.migrating import Migrating
from queuert.adapters.postgres.operations.pausing import Pausing
from queuert.adapters.postgres.operations.pruning import Pruning
from queuert.adapters.postgres.operations.reading import Reading
from queuert.adapters.postgres.operations.releasing import Releasing
from queuert.adapters.postgres.operations.scheduling import Scheduling
from queuert.adapters.postgres.operations.settling import Settling
from queuert.adapters.postgres.operations.workers import Workers
from queuert.ports.state import StateOperations


class PostgresOperations(
    Creating,
    Reading,
    Explaining,
    Examining,
    Claiming,
    Releasing,
    Settling,
    Listing,
    Limiting,
    Migrating,
    Workers,
    Pausing,
    Auditing,
    Scheduling,
    Pruning,
    Archiving,
    Counting,
):
    """The operations of a PostgreSQL database, for the tables of one schema and prefix: one round
    trip each.

    `clock` is the SQL expression for "now"; only tests need another one than the database's clock.
    """


if TYPE_CHECKING:
    _: type[StateOperations] = PostgresOperations
