"""Jobs in PostgreSQL, through psycopg 3 or asyncpg.

Only the driver that is used must be installed: each has its own modules, and a factory imports its
own. The providers in `drivers/` run `PgStatement`s: wrap one to see them.
"""

from __future__ import annotations

from queuert.adapters.postgres.adapter import (
    asyncpg_notify,
    asyncpg_state,
    psycopg_notify,
    psycopg_state,
    sync_psycopg_state,
)
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.operations import PostgresOperations

__all__ = [
    "PgStatement",
    "PostgresOperations",
    "asyncpg_notify",
    "asyncpg_state",
    "psycopg_notify",
    "psycopg_state",
    "sync_psycopg_state",
]
