"""The shop's own SQL on SQLite or PostgreSQL, so that one pipeline shows both.

A real shop uses one.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from queuert import Transaction

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    Db = sqlite3.Connection | AsyncConnection[Any]
else:
    Db = Any  # psycopg need not be installed


async def execute(tx: Transaction[Db], statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run a statement in the transaction of the jobs. Returns its rows."""
    connection = tx.connection
    if isinstance(connection, sqlite3.Connection):
        return connection.execute(statement, values).fetchall()
    cursor = await connection.execute(statement.replace("?", "%s").encode(), values)
    return await cursor.fetchall() if cursor.description else []
