"""What goes over the channels, and who is told: all of LISTEN and NOTIFY that needs no waiting.

A payload is a JSON array of strings. PostgreSQL takes fewer than 8,000 bytes of it, so many ids become several
payloads, which one statement sends. What is no such array does not come from us, and is passed over.
"""

from __future__ import annotations

import hashlib
import logging
import random
import threading
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from queuert.errors import InvalidArgument
from queuert.ports.notify import MISSED, Callback

logger = logging.getLogger("queuert.notify")

Topic = Literal["job_scheduled", "chain_completed", "ownership_lost"]
TOPICS: tuple[Topic, ...] = ("job_scheduled", "chain_completed", "ownership_lost")

PUBLISH = "SELECT pg_notify($1::text, payload) FROM unnest($2::text[]) AS payload"

LONGEST_PAYLOAD = 7500
"""Bytes. The server's limit is 7,999."""
LONGEST_PREFIX = 63 - max(len(topic) for topic in TOPICS)
"""Bytes. A channel's name is an identifier, and LISTEN cuts longer ones off without a word."""

CONNECT_TIMEOUT = 10.0
"""Seconds until an attempt to listen is given up."""
HEARTBEAT = 30.0
"""Seconds between two looks whether the server is still there: a dead network says nothing."""
PING_TIMEOUT = 10.0
APPLICATION = "queuert listener"
"""How the connection is called in pg_stat_activity, unless the URL says otherwise."""

_DECODER = msgspec.json.Decoder(list[str])


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


def quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def pack(values: Sequence[str]) -> list[str]:
    """As few payloads as will do."""
    payloads: list[str] = []
    parts: list[bytes] = []
    size = 1
    for value in values:
        part = msgspec.json.encode(value)
        if parts and size + len(part) + 1 > LONGEST_PAYLOAD:
            payloads.append(_payload(parts))
            parts, size = [], 1
        parts.append(part)
        size += len(part) + 1
    if parts:
        payloads.append(_payload(parts))
    return payloads


def _payload(parts: list[bytes]) -> str:
    return f"[{b','.join(parts).decode()}]"


class Subscriptions:
    """The callbacks, by topic. Thread-safe."""

    def __init__(self, channels: Channels) -> None:
        self._channels = channels
        self._lock = threading.Lock()
        self._callbacks: dict[Topic, dict[object, Callback]] = {topic: {} for topic in TOPICS}
        self._topics: dict[object, Topic] = {}
        self._odd_seen = False

    def __bool__(self) -> bool:
        return bool(self._topics)

    def add(self, topic: Topic, callback: Callback) -> object:
        subscription = object()
        with self._lock:
            self._topics[subscription] = topic
            self._callbacks[topic][subscription] = callback
        return subscription

    def remove(self, subscription: object) -> None:
        """A second time does nothing."""
        with self._lock:
            topic = self._topics.pop(subscription, None)
            if topic is not None:
                del self._callbacks[topic][subscription]

    def clear(self) -> None:
        with self._lock:
            self._topics.clear()
            for callbacks in self._callbacks.values():
                callbacks.clear()

    def receive(self, channel: str, payload: str | bytes) -> None:
        """A message has come."""
        topic = self._channels.topics.get(channel)
        if topic is None:
            return
        try:
            values = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeError):
            if not self._odd_seen:
                self._odd_seen = True
                logger.warning("messages on channel %s that are not ours are ignored, like %.80r", channel, payload)
            return
        for value in values:
            if value != MISSED:
                self._call(topic, value)

    def missed(self) -> None:
        """Nothing was heard for a while: whoever listens had better look for himself."""
        for topic in TOPICS:
            self._call(topic, MISSED)

    def _call(self, topic: Topic, value: str) -> None:
        with self._lock:
            found = list(self._callbacks[topic].items())
        for subscription, callback in found:
            if subscription not in self._topics:
                continue  # disposed of by a callback before it
            try:
                callback(value)
            except Exception:
                logger.exception("a listener for %s failed on %r; the others were called", topic, value)


class Pauses:
    """How long to wait before the next attempt to connect: from a twentieth of a second to 15 s."""

    FIRST, LAST = 0.1, 15.0
    STEADY = 5.0
    """Seconds that a connection must have held to be taken for a good one."""

    def __init__(self) -> None:
        self._failures = 0

    def after(self, lived: float) -> float:
        """The pause after an attempt that failed (0.0), or after a connection that lived so many seconds."""
        if lived >= self.STEADY:
            self._failures = 0
        pause = min(self.FIRST * 2.0**self._failures, self.LAST) * random.uniform(0.5, 1.0)
        self._failures = min(self._failures + 1, 20)
        return pause
