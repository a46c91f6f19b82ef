"""Mistakes in psycopg's connection strings, found before anything connects."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from queuert.adapters.postgres.urls import check_url, options_in
from queuert.errors import InvalidArgument


def check_conninfo(conninfo: str, what: str = "the URL of PostgreSQL") -> str:
    """The connection string, a URL or `name=value` pairs, if libpq can read it.

    What libpq says is not shown: it repeats the whole string, or the password.
    """
    if "://" in conninfo:
        check_url(conninfo, what)
        known = {option.keyword.decode() for option in Conninfo.get_defaults()} | {"ssl"}
        unknown = sorted({name for name, _ in options_in(conninfo.partition("?")[2])} - known)
        if unknown:
            raise InvalidArgument(f"{what} has options that libpq does not know: {', '.join(unknown)}")
    try:
        conninfo_to_dict(conninfo)
    except (psycopg.Error, UnicodeError):
        raise InvalidArgument(f"{what} cannot be read: check its quotes, and the names of its options") from None
    return conninfo
