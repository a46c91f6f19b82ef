"""An observer that remembers everything it is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from queuert import Observer
from queuert.ports.observer import EVENTS


class Recorder(Observer):
    def __init__(self) -> None:
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.threads: set[str] = set()
        for event in EVENTS:
            setattr(self, event, self._record(event))

    def _record(self, event: str) -> Callable[..., None]:
        def record(**facts: Any) -> None:
            self.told.append((event, facts))
            self.threads.add(threading.current_thread().name)

        return record

    def names(self, *families: str) -> list[str]:
        """The events, in their order; only those whose names begin with one of these words, if there are any."""
        return [event for event, _ in self.told if not families or event.split("_")[0] in families]

    def of(self, event: str) -> list[dict[str, Any]]:
        return [facts for name, facts in self.told if name == event]

    def one(self, event: str) -> dict[str, Any]:
        (facts,) = self.of(event)
        return facts

    def clear(self) -> None:
        self.told.clear()


def ignoring_workers(told: list[str]) -> list[str]:
    return [event for event in told if not event.startswith("worker_")]
