"""How many chains a step of pruning looks at, and how long to rest after it.

Both follow how long the database was busy, and not how long the worker waited for its answer:
beside a full worker, an answer of a few milliseconds is read only after a tenth of a second.
"""

from __future__ import annotations

from collections import deque

from queuert.records.retention import Pruned

STEP = (10, 1000)
"""Chains that one transaction looks at, at least and at most."""
LONG = 0.03
"""Seconds that a step should take in the database at most. On SQLite, others wait for it."""
REST = (0.5, 2.0)
"""How long to rest after a step with more to come, as a multiple of the time that it took: the
second number while pruning is on time, the first when it is late.
"""
LATE = (5.0, 0.1, 3600.0)
"""How late pruning may be: a part (the second number) of the time that chains are kept, but at
least and at most as many seconds as the first and the third number. Beyond that it rests less, and
when it is twice as late, as little as `REST` allows.
"""
COUNTED = 8
"""The quickest of this many steps shows what a chain costs. In the others, the database was busy
with something else, and smaller steps would not have been quicker per chain.
"""


class Pace:
    def __init__(self) -> None:
        self.limit = 100
        self._costs: deque[float] = deque(maxlen=COUNTED)
        """Seconds for each chain."""

    def rest(self, step: Pruned) -> float:
        """How long to rest after a step with more to come. The next one has the new `limit`."""
        if step.examined:
            self._costs.append(step.took / step.examined)
            fits = LONG / max(min(self._costs), LONG / STEP[1])
            self.limit = max(STEP[0], min(int(fits), self.limit * 2))
        allowed = min(max(LATE[0], step.kept * LATE[1]), LATE[2])
        late = min(1.0, max(0.0, step.behind / allowed - 1.0))
        return step.took * (REST[1] - late * (REST[1] - REST[0]))

    def failed(self) -> None:
        """Take smaller steps: this one may have been too large."""
        self._costs.clear()
        self.limit = max(STEP[0], self.limit // 2)
