"""The PostgreSQL server of a run, and a new database for each measurement.

The server is started from the binaries in a wheel, in a temporary directory, with fsync and
synchronous_commit on. To use another server, set BENCH_POSTGRES_URL, with a role that may create
databases.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

# The demo starts its server in the same way. The examples are scripts, not a package.
sys.path.append(str(Path(__file__).resolve().parent.parent / "examples"))
from embedded_postgres import embedded_postgres

ELSEWHERE = "BENCH_POSTGRES_URL"

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "512MB",
    "max_connections": "200",
    # No checkpoint in the middle of a measurement. Dropping the previous database has made one.
    "max_wal_size": "4GB",
    "checkpoint_timeout": "1h",
}
SHOWN = (*SETTINGS, "wal_level", "autovacuum", "jit")


class Server:
    def __init__(self, url: str) -> None:
        self.url = url
        self._numbers = itertools.count(1)
        self._kept: dict[str, str] = {}

    def url_of(self, database: str) -> str:
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc, f"/{database}", parts.query, ""))

    @asynccontextmanager
    async def database(self) -> AsyncGenerator[str]:
        """The URL of a new, empty database.

        Dropping it makes a checkpoint, so each measurement begins after one.
        """
        name = await self._create()
        try:
            yield self.url_of(name)
        finally:
            await self._drop(name)

    async def kept(self, name: str) -> tuple[str, bool]:
        """The URL of a database that stays until the end of the run, and whether it is new."""
        new = name not in self._kept
        if new:
            self._kept[name] = await self._create()
        return self.url_of(self._kept[name]), new

    async def drop_kept(self) -> None:
        while self._kept:
            await self._drop(self._kept.popitem()[1])

    async def _create(self) -> str:
        name = f"queuert_bench_{os.getpid()}_{next(self._numbers)}"
        await self.execute(f"CREATE DATABASE {name}")
        return name

    async def _drop(self, name: str) -> None:
        await self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    async def execute(self, statement: str, url: str | None = None) -> None:
        async with connection(url or self.url) as one:
            await one.execute(statement)

    async def describe(self) -> dict[str, str]:
        async with connection(self.url) as one:
            version = await one.fetchval("SHOW server_version")
            rows = await one.fetch(
                "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY ($1)", list(SHOWN)
            )
        return {"version": version, **dict(sorted(map(tuple, rows)))}


@asynccontextmanager
async def connection(url: str) -> AsyncGenerator[Any]:
    one = await asyncpg.connect(url)
    try:
        yield one
    finally:
        await one.close()


@contextmanager
def server() -> Generator[Server]:
    elsewhere = os.environ.get(ELSEWHERE)
    if elsewhere:
        yield Server(elsewhere.replace("postgres://", "postgresql://", 1))
        return
    with embedded_postgres(SETTINGS) as url:
        yield Server(url)
