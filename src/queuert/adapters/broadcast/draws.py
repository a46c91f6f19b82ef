"""What the announcements of jobs say beside the names of types, on a channel without wake hints:
how many jobs there are, and a random number. See `queuert.worker.claims.crowd`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping, Sequence

from queuert.ports.notify import Draw


class Draws:
    """Counts jobs until their types are announced. Thread-safe."""

    def __init__(self) -> None:
        self._jobs: dict[str, int] = {}
        """By type: jobs that the next announcement of the type is for."""
        self._lock = threading.Lock()

    def add(self, counts: Mapping[str, int]) -> None:
        with self._lock:
            for type_name, count in counts.items():
                self._jobs[type_name] = self._jobs.get(type_name, 0) + count

    def take(self, type_names: Sequence[str]) -> Draw:
        """For an announcement of these types."""
        with self._lock:
            jobs = sum(self._jobs.pop(type_name, 0) for type_name in type_names)
        return Draw(random.getrandbits(31), max(1, jobs))
