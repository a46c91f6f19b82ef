"""The worker process: `python -m flask_orders.worker`. After SIGTERM it finishes its running jobs.

The worker's own statements use an async engine. The handlers are plain functions in threads, and
get sync sessions.
"""

from __future__ import annotations

import asyncio
import sys

from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

from flask_orders.orders import DATABASE_URL, ReserveStock, handlers, make_engine
from queuert import Worker
from queuert.sqlalchemy import connect


async def main() -> int:
    engine = make_engine()
    async_engine = create_async_engine(DATABASE_URL.replace("sqlite:", "sqlite+aiosqlite:"))
    try:
        sessions = async_sessionmaker(async_engine)
        async with connect(sessions, jobs=[ReserveStock], sync=sessionmaker(engine)) as client:
            return await Worker(client, [handlers], concurrency=4).run()
    finally:
        await async_engine.dispose()
        engine.dispose()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
