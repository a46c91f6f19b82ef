"""Notifications wait for the commit, and are sent once per type, chain and job."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from queuert.engine.callbacks import Step
from queuert.engine.transaction import Announce
from queuert.ports.notify import Topic


class Publisher(Protocol):
    """The publishing half of the notify port, sync or async."""

    def publish(self, topic: Topic, values: Sequence[str], /) -> Awaitable[None] | None: ...

    def provide_wake_hints(self, counts: Mapping[str, int], /) -> Awaitable[None] | None: ...


_ORDER: tuple[Topic, ...] = ("ownership_lost", "chain_ended", "pause_changed", "schedule_changed", "job_scheduled")


class Notifications:
    """A hook (see `queuert.engine.transaction`) that collects what is to be published."""

    # Runs after the observers: when a worker or waiter wakes up, the event is already recorded.
    order = 1

    def __init__(self, publisher: Publisher, announce: Announce | None = None) -> None:
        """`announce`: sends them in the background."""
        self._publisher = publisher
        self._announce = announce
        self._values: defaultdict[Topic, list[str]] = defaultdict(list)

    def add(self, topic: Topic, *values: str) -> None:
        self._values[topic] += values

    def checkpoint(self) -> Callable[[], None]:
        lengths = {topic: len(values) for topic, values in self._values.items()}

        def restore() -> None:
            for topic, values in self._values.items():
                del values[lengths.get(topic, 0) :]

        return restore

    def steps(self) -> Iterator[Step]:
        if self._announce is None:
            yield from publications(self._publisher, self._values)
        elif any(self._values.values()):
            waiting = self._announce(self._values)
            if waiting is not None:
                yield lambda: waiting


def publications(publisher: Publisher, values: Mapping[Topic, Sequence[str]]) -> Iterator[Step]:
    """The calls that publish these values, each once."""
    for topic in _ORDER:
        found = values.get(topic)
        if not found:
            continue
        counts = Counter(found)
        if topic == "job_scheduled":
            # The budget comes first: a worker that wakes up before it is stored would find the old
            # one used up.
            yield partial(publisher.provide_wake_hints, counts)
        yield partial(publisher.publish, topic, list(counts))
