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
    admin: bool
    """The admin shows the jobs of this database (default: of "default", or of the first one)."""
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


def admin_database() -> str | None:
    """The alias of the database that the admin shows. None if no database has jobs."""
    known = databases()
    chosen = [alias for alias, options in known.items() if options.get("admin")]
    return next(iter([*chosen, *(alias for alias in known if alias == "default"), *known]), None)


def jobs_view() -> str:
    """The view of all jobs in that database. Django quotes no name that has quotes already, so the
    schema can be part of it.
    """
    try:
        alias = admin_database()
        options: DatabaseOptions = {} if alias is None else databases()[alias]
    except InvalidArgument:
        options = {}  # the system checks report it
    name = f"{options.get('table_prefix', 'queuert_')}jobs"
    return f'"{options["schema"]}"."{name}"' if "schema" in options else name
