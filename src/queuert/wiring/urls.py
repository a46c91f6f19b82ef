"""What a URL shows about its database. No adapter is imported for that."""

from __future__ import annotations

from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from queuert.errors import InvalidArgument

Driver = Literal["psycopg", "asyncpg"]

POSTGRES: dict[str, Driver | None] = {
    "postgresql": None,
    "postgres": None,
    "postgresql+psycopg": "psycopg",
    "postgresql+asyncpg": "asyncpg",
}
"""The schemes of PostgreSQL, and the driver that each names."""
SQLITE = ("sqlite", "sqlite+aiosqlite")
EMBEDDED = (*SQLITE, "memory")
"""The schemes of databases without a server."""


def is_postgres(url: str) -> bool:
    return url.partition(":")[0] in POSTGRES


def database_file(url: str) -> Path | None:
    """The file of a SQLite database. None for other databases."""
    return sqlite_file(url) if url.partition(":")[0] in SQLITE else None


def sqlite_file(url: str) -> Path:
    """The file of a SQLite URL."""
    # sqlite:///relative and sqlite:////absolute, as SQLAlchemy writes them.
    plain = url.replace("sqlite+aiosqlite:", "sqlite:", 1)
    prefix, _, path = plain.partition("sqlite:///")
    if prefix or not path or path.startswith(":memory:"):
        raise InvalidArgument(
            f"{plain!r} does not name a database file: use sqlite:///file.db or sqlite:////absolute/file.db "
            "(or memory:// for a database in memory)"
        )
    if "?" in path or "#" in path:
        raise InvalidArgument(
            f"{plain.partition('?')[0]!r} is followed by options: pass them as keywords of connect(). "
            "(In a file name, write ? as %3F and # as %23.)"
        )
    return Path(unquote(path))
