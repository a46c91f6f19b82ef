"""The setting QUEUERT: which of the DATABASES store jobs, with which options.

QUEUERT = {"default": {}}                                           # the default
QUEUERT = {"default": {}, "orders": {"schema": "jobs"}}
"""

from __future__ import annotations

from typing import Any, TypedDict, cast

from django.conf import settings

from queuert.errors import InvalidArgument


class DatabaseOptions(TypedDict, total=False):
    """The options of one database."""

    schema: str
    """PostgreSQL: the schema of the tables (default: `public`)."""
    table_prefix: str
    """The beginning of all table names (default: `queuert_`)."""
    listen_url: str
    """PostgreSQL: the URL of a direct connection for LISTEN, if DATABASES leads to PgBouncer."""
    prepare: bool
    """PostgreSQL: the worker's own connections use prepared statements (default: True). Set it to
    False for PgBouncer in transaction mode."""


def databases() -> dict[str, DatabaseOptions]:
    """The aliases of the databases with jobs, and their options."""
    given: Any = getattr(settings, "QUEUERT", {"default": {}})
    if not isinstance(given, dict):
        raise InvalidArgument('QUEUERT must be a dictionary like {"default": {}}')
    for alias, options in given.items():
        if alias not in settings.DATABASES:
            raise InvalidArgument(f"QUEUERT names the database {alias!r}, which is not in DATABASES")
        unknown = sorted(set(options) - DatabaseOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(sorted(DatabaseOptions.__annotations__))
            raise InvalidArgument(f"QUEUERT[{alias!r}] has no option {', '.join(unknown)}: use {known}")
    return cast("dict[str, DatabaseOptions]", given)


def options_of(alias: str) -> DatabaseOptions:
    known = databases()
    if alias not in known:
        raise InvalidArgument(
            f"the database {alias!r} is not in the setting QUEUERT: add it there. "
            f"QUEUERT now has {', '.join(map(repr, known)) or 'no databases'}"
        )
    return known[alias]
