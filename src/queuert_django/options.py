"""The setting QUEUERT: which of the DATABASES hold jobs, and how.

QUEUERT = {"default": {}}                                           # the same as leaving it out
QUEUERT = {"default": {}, "orders": {"schema": "jobs"}}
"""

from __future__ import annotations

from typing import Any, TypedDict, cast

from django.conf import settings

from queuert.errors import InvalidArgument


class DatabaseOptions(TypedDict, total=False):
    """What can be said about one database."""

    schema: str
    """PostgreSQL: where the tables are (default: `public`)."""
    table_prefix: str
    """What the tables' names begin with (default: `queuert_`)."""
    listen_url: str
    """PostgreSQL: a direct connection for LISTEN, where the database's settings lead to PgBouncer."""
    prepare: bool
    """PostgreSQL: the worker's own connections use prepared statements (default: yes). No, for PgBouncer."""


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
            raise InvalidArgument(f"QUEUERT[{alias!r}] has no option {', '.join(unknown)}")
    return cast("dict[str, DatabaseOptions]", given)


def options_of(alias: str) -> DatabaseOptions:
    known = databases()
    if alias not in known:
        raise InvalidArgument(
            f"the database {alias!r} is not there for jobs: name it in the setting QUEUERT, "
            f"which has {', '.join(map(repr, known)) or 'none'}"
        )
    return known[alias]
