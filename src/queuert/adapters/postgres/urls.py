"""Mistakes in a URL of PostgreSQL that can be found before anything connects.

No message shows the URL, or any part of it that may be the password. So what a driver says about a
URL that it cannot read is not passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote_plus

from queuert.errors import InvalidArgument

SHAPE = "must look like postgresql://user:password@host:5432/database"

_RAW_PERCENT = re.compile("%(?![0-9A-Fa-f]{2})|%00")
_HOST = re.compile(r"(?:\[[^][]*\]|[^][:@]*)(?::([0-9]*))?")
_INTEGER = re.compile(r"\s*[-+]?[0-9]+\s*")

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_CHOICES: dict[str, tuple[str, ...]] = {
    "sslmode": _SSL_MODES,
    "sslnegotiation": ("postgres", "direct"),
    "sslcertmode": ("disable", "allow", "require"),
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "load_balance_hosts": ("disable", "random"),
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
}
_INTEGERS = frozenset(
    ("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
)


def check_url(url: str, what: str = "the URL of PostgreSQL") -> None:
    """Raise `InvalidArgument` for a mistake that every driver would make something else of."""
    place, _, query = url.partition("://")[2].partition("?")
    if _RAW_PERCENT.search(url):
        raise InvalidArgument(
            f"{what} has a % that is not followed by two hexadecimal digits: write a percent sign as %25"
        )
    authority = place.partition("/")[0]
    if "#" in place or authority.count("@") > 1 or not all(map(_is_host, authority.rpartition("@")[2].split(","))):
        raise InvalidArgument(
            f"{what} {SHAPE}: in a user name or password, write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23"
        )
    for name, value in options_in(query, what):
        _check_option(name, value, what)


def options_in(query: str, what: str = "the URL of PostgreSQL") -> Iterator[tuple[str, str]]:
    """The names and values after the question mark."""
    for part in query.split("&") if query else ():
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise InvalidArgument(f"{what} has an option without a value: after the ?, write name=value&name=value")
        yield unquote_plus(name), unquote_plus(value)


def _is_host(text: str) -> bool:
    found = _HOST.fullmatch(text)
    return found is not None and (not found[1] or int(found[1]) <= 65535)


def _check_option(name: str, value: str, what: str) -> None:
    choices = _CHOICES.get(name)
    if choices is not None and value and value not in choices:
        raise InvalidArgument(f"{what} has {name}={value}, which must be one of {', '.join(choices)}")
    if name in _INTEGERS and value and not _INTEGER.fullmatch(value):
        raise InvalidArgument(f"{what} has {name}={value}, which must be a whole number")
