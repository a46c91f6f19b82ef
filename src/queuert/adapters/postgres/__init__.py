"""Jobs in PostgreSQL, through psycopg 3 or asyncpg.

Only the driver that is used need be installed: the providers stand in modules of their own, and a factory imports its
own. The providers in `drivers/` carry out `PgStatement`s: wrap one to see what is done.
"""

from __future__ import annotations

from queuert.adapters.postgres.adapter import asyncpg_state, psycopg_state, sync_psycopg_state
from queuert.adapters.postgres.command import PgStatement
from queuert.adapters.postgres.operations import PostgresOperations

__all__ = ["PgStatement", "PostgresOperations", "asyncpg_state", "psycopg_state", "sync_psycopg_state"]
