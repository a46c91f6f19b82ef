"""Subjects and keys, and what is refused as part of them."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import urlsplit
from uuid import uuid4

from queuert.adapters.broadcast.messages import TOPICS, Topic
from queuert.errors import InvalidArgument, NotifyUnavailable

LONGEST_PAYLOAD = 60_000
"""Bytes. A server takes a million, unless it is told otherwise."""

LONGEST_KEY = 1000
"""Characters of a type's name in a key; of longer ones, a digest stands for the rest."""

SCHEMES = ("nats", "tls")

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_PREFIX = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Names:
    """The names of one installation's subjects and keys."""

    def __init__(self, prefix: str) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise InvalidArgument(
                f"the prefix of subjects must be words of letters, digits, _ and -, joined by dots, got {prefix!r}"
            )
        self._prefix = prefix
        self.subjects: dict[Topic, str] = {topic: f"{prefix}.{topic}" for topic in TOPICS}
        self.topics: dict[str, Topic] = {name: topic for topic, name in self.subjects.items()}

    def echo(self) -> str:
        """A subject that nobody else uses."""
        return f"{self._prefix}.echo.{uuid4().hex}"

    def key(self, type_name: str) -> str:
        """A key is a subject in disguise: dots divide it, and few characters are allowed. The others become `=2E`."""
        name = "".join(_escaped(character) for character in type_name)
        if len(name) > LONGEST_KEY:
            name = f"{name[:LONGEST_KEY]}={hashlib.sha256(type_name.encode()).hexdigest()}"
        return f"{self._prefix}.{name}"


def _escaped(character: str) -> str:
    if _PLAIN.fullmatch(character):
        return character
    return "".join(f"={byte:02X}" for byte in character.encode())


def check_url(url: str) -> None:
    """The message must not show the URL: there may be a password in it. Several servers are divided by commas."""
    for part in url.split(","):
        try:
            location = urlsplit(part)
            good = location.scheme in SCHEMES and bool(location.hostname) and (location.port or 1) > 0
        except ValueError:
            good = False
        if not good:
            raise InvalidArgument("the URL of NATS must look like nats://user:password@host:4222")


def check_bucket(bucket: str | None) -> str | None:
    if bucket is not None and not _PLAIN.fullmatch(bucket):
        raise InvalidArgument(f"the name of a bucket must be letters, digits, _ and -, got {bucket!r}")
    return bucket


def unavailable(error: BaseException) -> NotifyUnavailable:
    return NotifyUnavailable(f"NATS does not take part: {str(error) or type(error).__name__}")
