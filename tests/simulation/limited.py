"""Jobs with limits by key, and what must be true of them after every commit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from queuert import Attempt, EntryJob, Handlers, Limit, Rate, RateLimited
from queuert.records.limits import split_lane
from queuert.records.model import JobRow

if TYPE_CHECKING:
    from tests.simulation.world import World

AT_ONCE = 2
IN_A_TIME = Rate(2, per=20)
KEYS = ("x", "y", "z")


class ByKey(EntryJob[int], name="by_key", limit=Limit(by="key", concurrency=AT_ONCE, weight="weight")):
    key: str
    weight: float = 1.0
    refused: int = 0
    """How often the partner says "not now"."""


class InOrder(EntryJob[int], name="in_order", limit=Limit(by="key", concurrency=1, ordered=True)):
    key: str
    failures: int = 0


class Rated(EntryJob[int], name="rated", limit=Limit(by="key", rate=IN_A_TIME)):
    key: str


LIMITED: list[type[Any]] = [ByKey, InOrder, Rated]
NAMES = ("by_key", "in_order", "rated")


def draw(random: Random, failures: int) -> Any:
    key, kind = random.choice(KEYS), random.randrange(3)
    if kind == 0:
        return ByKey(key=key, weight=random.choice((0.5, 1.0, 4.0)), refused=random.choice((0, 0, 0, 1)))
    return InOrder(key=key, failures=failures) if kind == 1 else Rated(key=key)


def handle(handlers: Handlers[Any], world: World, think: Callable[[], Awaitable[None]]) -> None:
    @handlers.handles(ByKey)
    async def by_key(attempt: Attempt[ByKey]) -> int:
        await think()
        if world.begun[attempt.job_id] <= attempt.job.refused:
            raise RateLimited(5)
        return 1

    @handlers.handles(InOrder)
    async def in_order(attempt: Attempt[InOrder]) -> int:
        await think()
        if attempt.number <= attempt.job.failures:
            raise ValueError(f"attempt {attempt.number} fails")
        return 1

    @handlers.handles(Rated)
    async def rated(attempt: Attempt[Rated]) -> int:
        await think()
        return 1


class Ledger:
    """What was seen of each key, commit by commit."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._begins: defaultdict[str, set[tuple[datetime, str]]] = defaultdict(set)
        self._begun: defaultdict[str, dict[str, None]] = defaultdict(dict)
        """Of an ordered key: the jobs that have begun."""

    def look(self, rows: Iterable[JobRow]) -> None:
        """All jobs with a limit, after a commit."""
        found = {row.id: row for row in rows}
        running = [row for row in found.values() if row.status == "running"]
        for lane, number in Counter(row.lane or "" for row in running).items():
            name, key = split_lane(lane)
            most = {"by_key": AT_ONCE, "in_order": 1}.get(name)
            if most is not None and number > most:
                self._violated(f"{number} jobs of the key {key} of {name} run at once, and {most} are allowed")
        for row in running:
            if row.type_name == "rated" and row.last_attempt_at is not None:
                self._begin(row.lane or "", row.last_attempt_at, row.id)
            if row.type_name == "in_order":
                self._in_turn(row, found)

    def _begin(self, lane: str, at: datetime, job_id: str) -> None:
        begins, per = self._begins[lane], timedelta(seconds=20)
        begins.add((at, job_id))
        number = sum(at - per <= each <= at for each, _ in begins)
        if number > IN_A_TIME.number:
            self._violated(f"{number} jobs begin within {per}, and {IN_A_TIME.number} are allowed")

    def _in_turn(self, row: JobRow, found: dict[str, JobRow]) -> None:
        begun = self._begun[row.lane or ""]
        begun[row.id] = None
        for job_id in begun:
            other = found.get(job_id)
            if other is not None and job_id != row.id and other.status in ("pending", "running", "failed"):
                self._violated(f"{row.id} begins although {job_id} of its key has begun and is {other.status}")


def is_stopped(row: JobRow, rows: Iterable[JobRow]) -> bool:
    """Whether it waits behind a job that has failed."""
    return row.type_name == "in_order" and any(
        other.lane == row.lane and other.status == "failed" and other.last_attempt_at is not None for other in rows
    )
