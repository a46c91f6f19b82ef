"""What goes over a channel, and who is told: all of it that needs no waiting.

A payload is a JSON array of strings. What is no such array does not come from us, and is passed over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from queuert.ports.notify import MISSED, Callback

logger = logging.getLogger("queuert.notify")

Topic = Literal["job_scheduled", "chain_completed", "ownership_lost"]
TOPICS: tuple[Topic, ...] = ("job_scheduled", "chain_completed", "ownership_lost")

_DECODER = msgspec.json.Decoder(list[str])


def pack(values: Sequence[str], longest: int) -> list[str]:
    """As few payloads as will do, of no more than so many bytes each. A value that is longer has one for itself."""
    payloads: list[str] = []
    parts: list[bytes] = []
    size = 1
    for value in values:
        part = msgspec.json.encode(value)
        if parts and size + len(part) + 1 > longest:
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

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        """`topics` by the name of their channel."""
        self._topic_of_channel = topics
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
        topic = self._topic_of_channel.get(channel)
        if topic is None or not self._callbacks[topic]:
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
                self.call(topic, value)

    def missed(self) -> None:
        """Nothing was heard for a while: whoever listens had better look for himself."""
        for topic in TOPICS:
            self.call(topic, MISSED)

    def call(self, topic: Topic, value: str) -> None:
        with self._lock:
            found = list(self._callbacks[topic].items())
        for subscription, callback in found:
            if subscription not in self._topics:
                continue  # disposed of by a callback before it
            try:
                callback(value)
            except Exception:
                logger.exception("a listener for %s failed on %r; the others were called", topic, value)
