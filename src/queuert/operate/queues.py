"""Queues as the workers serve them, with their job types and what is paused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from queuert.base.own_types import is_own
from queuert.operate.counts import BOUND, Count
from queuert.records.model import TypeStats
from queuert.records.pauses import Pause, PauseTarget
from queuert.records.workers import WorkerInfo


@dataclass
class QueueType:
    name: str
    running: Count
    pending: Count
    concurrency: set[int] = field(default_factory=set[int])
    """How many one worker runs at once, if that is limited."""
    pause: Pause | None = None


@dataclass
class QueueLine:
    """A queue as the workers serve it."""

    name: str | None
    """None: types that no worker serves."""
    workers: int = 0
    caps: set[int] = field(default_factory=set[int])
    priorities: set[int] = field(default_factory=set[int])
    types: dict[str, QueueType] = field(default_factory=dict[str, QueueType])
    pause: Pause | None = None

    @property
    def running(self) -> int:
        return sum(each.running.number for each in self.types.values())


def queue_lines(
    workers: Iterable[WorkerInfo], stats: dict[str, TypeStats], pauses: dict[PauseTarget, Pause]
) -> list[QueueLine]:
    """Queues by name, and at the end the types that no worker serves."""
    queues: dict[str, QueueLine] = {}
    served: set[str] = set()
    for worker in workers:
        for queue in worker.queues:
            line = queues.setdefault(queue.name, QueueLine(queue.name))
            line.workers += 1
            line.priorities.add(queue.priority)
            if queue.max_concurrency is not None:
                line.caps.add(queue.max_concurrency)
            for each in queue.types:
                if is_own(each.name):
                    continue
                served.add(each.name)
                known = line.types.setdefault(each.name, _type(each.name, stats, pauses))
                if each.concurrency is not None:
                    known.concurrency.add(each.concurrency)
    for target, pause in pauses.items():
        if target.scope == "queue":
            queues.setdefault(target.name, QueueLine(target.name)).pause = pause
    found = [queues[name] for name in sorted(queues) if queues[name].types or queues[name].pause]
    paused = {target.name for target in pauses if target.scope == "type"}
    others = sorted((set(stats) | paused) - served)
    if others:
        found.append(QueueLine(None, types={name: _type(name, stats, pauses) for name in others}))
    return found


def _type(name: str, stats: dict[str, TypeStats], pauses: dict[PauseTarget, Pause]) -> QueueType:
    known = stats.get(name, TypeStats(name))
    return QueueType(
        name,
        Count.up_to(BOUND, known.running),
        Count.up_to(BOUND, known.pending),
        pause=pauses.get(PauseTarget("type", name)),
    )
