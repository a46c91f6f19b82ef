"""Channel names, and the SQL that publishes.

PostgreSQL accepts payloads of fewer than 8,000 bytes, so many ids become several payloads, which
one statement sends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from queuert.adapters.broadcast.messages import WIRE_NAMES
from queuert.adapters.postgres.command import SEPARATOR, PgStatement
from queuert.errors import InvalidArgument

# The jobs are committed already and losing a notification is harmless: this need not wait for the
# disk.
# The payloads are one text, because a list costs drivers more. They are JSON, so they contain no
# control characters.
_PUBLISH = (
    "SELECT pg_notify($1::text, payload) FROM string_to_table($2::text, E'\\x1e') AS payload, "
    "set_config('synchronous_commit', 'off', true)"
)

LONGEST_PREFIX = 63 - max(len(name) for name in WIRE_NAMES.values())
"""Bytes. A channel's name is an identifier, and LISTEN silently truncates longer ones."""


def default_prefix(schema: str, table_prefix: str) -> str:
    """Channels belong to a database, not to a schema: the names must keep installations apart."""
    prefix = f"{schema}.{table_prefix}"
    if len(prefix.encode()) <= LONGEST_PREFIX:
        return prefix
    digest = hashlib.sha256(prefix.encode()).hexdigest()[:12]
    return prefix.encode()[: LONGEST_PREFIX - 13].decode(errors="ignore") + "~" + digest


def check_prefix(prefix: str) -> str:
    if not prefix or "\0" in prefix or len(prefix.encode()) > LONGEST_PREFIX:
        raise InvalidArgument(
            f"channel_prefix must be 1 to {LONGEST_PREFIX} bytes without NUL characters, got {prefix!r}"
        )
    return prefix


def publish(channel: str, payloads: Sequence[str]) -> PgStatement:
    return PgStatement(_PUBLISH, (channel, SEPARATOR.join(payloads)), indifferent=True)


def listen(channels: Sequence[str]) -> str:
    """The SQL that begins to listen, in one round trip."""
    return "; ".join(f"LISTEN {_quoted(channel)}" for channel in channels)


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
