"""Payloads, and the callbacks that they are for.

A payload is a JSON array of strings. Anything else does not come from us and is ignored. The first
string may be a draw (see `queuert.ports.notify`): it begins with a null character, which no name
and no id contains, so older versions ignore it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

import msgspec

from queuert.ports.notify import MISSED, TOPICS, Announced, Callback, Draw, Topic

logger = logging.getLogger("queuert.notify")

WIRE_NAMES: dict[Topic, str] = {
    "job_scheduled": "job_scheduled",
    "chain_ended": "chain_completed",  # the old name: processes of older versions listen to it
    "ownership_lost": "ownership_lost",
    "pause_changed": "pause_changed",
    "schedule_changed": "schedule_changed",
}

_DECODER = msgspec.json.Decoder(list[str])


_DRAW = "\0"
_MOST = 2**63
_LONGEST_DRAW = 40
"""Bytes of an encoded draw, at most."""


def pack(values: Sequence[str], longest: int, draw: Draw | None = None) -> list[str]:
    """As few payloads as possible, each of at most `longest` bytes.

    A longer value gets its own payload. With a draw, each payload begins with it.
    """
    if draw is not None:
        first = msgspec.json.encode(f"{_DRAW}{draw.number}:{draw.jobs}").decode()
        return [f"[{first},{payload[1:]}" for payload in pack(values, longest - _LONGEST_DRAW)]
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


def _unpack(payload: str | bytes) -> list[str]:
    """The values. Those that were announced with a draw have it."""
    values = _DECODER.decode(payload)
    if not (values and values[0].startswith(_DRAW)):
        return values
    try:
        draw = Draw(*map(int, values[0][1:].split(":")))
    except (ValueError, TypeError):
        return values[1:]
    if not (0 <= draw.number < _MOST and 0 <= draw.jobs < _MOST):  # not ours: workers compute with these
        return values[1:]
    announced = [Announced(value) for value in values[1:]]
    for value in announced:
        value.draw = draw
    return list(announced)


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
            values = _unpack(payload)
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
        if not self._callbacks[topic]:
            return  # as for the ends of chains that no call waits for, of which there are many
        with self._lock:
            found = list(self._callbacks[topic].items())
        for subscription, callback in found:
            if subscription not in self._callbacks[topic]:
                continue  # an earlier callback has removed it
            try:
                callback(value)
            except Exception:
                logger.exception("a listener for %s failed on %r; the others were called", topic, value)
