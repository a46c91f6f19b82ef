"""Jobs in the transactions of SQLAlchemy's sessions and connections: see docs/sqlalchemy.md.

from queuert.sqlalchemy import connect

async with connect(sessions, jobs=[Welcome]) as client:
    async with sessions.begin() as session:
        session.add(User(name="ada"))
        await client.start(session, Welcome(user="ada"))
"""

from queuert.wiring.options import need

need("sqlalchemy", "sqlalchemy")

from queuert.wiring.alembic import downgrade, upgrade  # noqa: E402
from queuert.wiring.sqlalchemy import connect, connect_sync  # noqa: E402

__all__ = ["connect", "connect_sync", "downgrade", "upgrade"]
