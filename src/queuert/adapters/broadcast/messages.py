"""Payloads, and the callbacks that they are for.

A payload is a JSON array of strings. Anything else does not come from us and is ignored.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

import msgspec

from queuert.ports.notify import MISSED, TOPICS, Callback, Topic

logger = logging.getLogger("queuert.notify")

WIRE_NAMES: dict[Topic, str] = {
    "job_scheduled": "job_scheduled",
    "chain_ended": "chain_completed",  # the old name: processes of older versions listen to it
    "ownership_lost": "ownership_lost",
}

_DECODER = msgspec.json.Decoder(list[str])


def pack(values: Sequence[str], longest: int) -> list[str]:
    """As few payloads as possible, each of at most `longest` bytes.

    A longer value gets its own payload.
    """
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
        """`topics` maps the name of each channel to its topic."""
        self._topics = topics
        self._lock = threading.Lock()
        self._callbacks: dict[Topic, dict[object, Callback]] = {topic: {} for topic in TOPICS}
        self._odd_seen = False

    def __bool__(self) -> bool:
        return any(self._callbacks.values())

    def add(self, topic: Topic, callback: Callback) -> object:
        subscription = object()
        with self._lock:
            self._callbacks[topic][subscription] = callback
        return subscription

    def remove(self, subscription: object) -> None:
        """Remove a callback. A second call does nothing."""
        with self._lock:
            for callbacks in self._callbacks.values():
                callbacks.pop(subscription, None)

    def clear(self) -> None:
        with self._lock:
            for callbacks in self._callbacks.values():
                callbacks.clear()

    def receive(self, channel: str, payload: str | bytes) -> None:
        """Handle a message."""
        topic = self._topics.get(channel)
        if topic is None or not self._callbacks[topic]:
            return
        try:
            values = _DECODER.decode(payload)
        except (msgspec.MsgspecError, UnicodeError):
            if not self._odd_seen:
                self._odd_seen = True
                logger.warning("ignoring messages on channel %s that are not ours, such as %.80r", channel, payload)
            return
        for value in values:
            if value != MISSED:
                self.call(topic, value)

    def missed(self) -> None:
        """Messages may have been lost: tell every callback."""
        for topic in TOPICS:
            self.call(topic, MISSED)

    def call(self, topic: Topic, value: str) -> None:
        with self._lock:
            found = list(self._callbacks[topic].items())
        for subscription, callback in found:
            if subscription not in self._callbacks[topic]:
                continue  # an earlier callback has removed it
            try:
                callback(value)
            except Exception:
                logger.exception("a listener for %s failed on %r; the others were called", topic, value)
