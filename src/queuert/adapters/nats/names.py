"""Names of subjects, keys and buckets: what NATS allows in them."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit

from queuert.errors import InvalidArgument

LONGEST_KEY = 1000
"""Characters of a type's name in a key. In longer ones, a digest replaces the rest."""

SCHEMES = ("nats", "tls")

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


def hint_key(prefix: str, type_name: str) -> str:
    """The key of a type's wake hints.

    Dots divide keys and few characters are allowed: others become `=2E`.
    """
    name = "".join(_escaped(character) for character in type_name)
    if len(name) > LONGEST_KEY:
        name = f"{name[:LONGEST_KEY]}={hashlib.sha256(type_name.encode()).hexdigest()}"
    return f"{prefix}.{name}"


def _escaped(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"={byte:02X}" for byte in character.encode())


def check_prefix(prefix: str) -> None:
    if not _PREFIX.fullmatch(prefix):
        raise InvalidArgument(
            f"the prefix of subjects must be words of letters, digits, _ and -, joined by dots, got {prefix!r}"
        )


def check_url(url: str) -> None:
    """The message does not show the URL: it may contain a password.

    Commas separate several servers.
    """
    for part in url.split(","):
        try:
            location = urlsplit(part)
            good = location.scheme in SCHEMES and bool(location.hostname) and (location.port or 1) > 0
        except ValueError:
            good = False
        if not good:
            raise InvalidArgument("the URL of NATS must look like nats://user:password@host:4222")


def check_bucket(bucket: str | None) -> None:
    if bucket is not None and not _PLAIN.fullmatch(bucket):
        raise InvalidArgument(f"the name of a bucket must be letters, digits, _ and -, got {bucket!r}")
