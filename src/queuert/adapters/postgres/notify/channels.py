"""How channels are called, and what PostgreSQL allows on them.

It takes payloads of fewer than 8,000 bytes, so many ids become several of them, which one statement sends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from queuert.adapters.broadcast.messages import TOPICS, Topic, pack
from queuert.adapters.postgres.command import PgStatement
from queuert.errors import InvalidArgument

# What is announced is committed already, and a lost announcement does no harm: nobody has to wait for the disk.
_PUBLISH = (
    "SELECT pg_notify($1::text, payload) FROM unnest($2::text[]) AS payload, "
    "set_config('synchronous_commit', 'off', true)"
)

LONGEST_PAYLOAD = 7500
"""Bytes. The server's limit is 7,999."""
LONGEST_PREFIX = 63 - max(len(topic) for topic in TOPICS)
"""Bytes. A channel's name is an identifier, and LISTEN cuts longer ones off without a word."""

APPLICATION = "queuert listener"
"""How the connection is called in pg_stat_activity, unless the URL says otherwise."""


def default_prefix(schema: str, table_prefix: str) -> str:
    """Channels belong to a database, not to a schema: the names must keep installations apart."""
    prefix = f"{schema}.{table_prefix}"
    if len(prefix.encode()) <= LONGEST_PREFIX:
        return prefix
    digest = hashlib.sha256(prefix.encode()).hexdigest()[:12]
    return prefix.encode()[: LONGEST_PREFIX - 13].decode(errors="ignore") + "~" + digest


class Channels:
    """The names of one installation's channels."""

    def __init__(self, prefix: str) -> None:
        if not prefix or "\0" in prefix or len(prefix.encode()) > LONGEST_PREFIX:
            raise InvalidArgument(
                f"channel_prefix must be 1 to {LONGEST_PREFIX} bytes without NUL characters, got {prefix!r}"
            )
        self.names: dict[Topic, str] = {topic: f"{prefix}{topic}" for topic in TOPICS}
        self.topics: dict[str, Topic] = {name: topic for topic, name in self.names.items()}

    def listen(self, topics: Iterable[Topic] = TOPICS) -> str:
        """The SQL that begins to listen, in one round trip."""
        return "; ".join(f"LISTEN {quoted(self.names[topic])}" for topic in topics)

    def publish(self, topic: Topic, values: Sequence[str]) -> PgStatement:
        return PgStatement(_PUBLISH, (self.names[topic], pack(values, LONGEST_PAYLOAD)), indifferent=True)


def quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
