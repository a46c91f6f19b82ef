"""What happened to jobs, minute by minute: what users read, and what is stored of it.

Tallies are stored: to how many jobs of a type something happened in one minute, hour or day. If
attempts were timed, there is a tally for each bucket of a histogram, and one for each fine bucket:
these are a tenth wide, and stored together as one value. Tallies are only added up, so they can be
merged in any order. Older versions know nothing of fine buckets. What they have counted is in the
others only.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple

import msgspec

from queuert.base.statuses import Status
from queuert.errors import InvalidArgument


def _fine_bounds(bounds: Sequence[float], width: float) -> tuple[float, ...]:
    """Each interval between these, in equal parts of a logarithmic scale."""
    found = list[float]()
    for low, high in itertools.pairwise(bounds):
        number = math.ceil(math.log(high / low) / math.log(width))
        found += (float(f"{low * (high / low) ** (place / number):.6g}") for place in range(number))
    return (*found, bounds[-1])


BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3600.0)
"""Seconds: where the buckets of a histogram end."""
FINE_BOUNDS = _fine_bounds((0.0001, *BOUNDS, 1_000_000.0), 1.1)
"""The same for fine buckets. Each of `BOUNDS` is among them."""
UNTIMED = -1
"""In place of a bucket: the job was not running."""
FINE = 1000
"""Fine bucket 0. In a tally, its number is how many of those in the other buckets are in this
one."""
DETAILS = -2
"""The bucket of the row in which PostgreSQL stores all fine ones. Its own number is 0, so older
versions leave it out."""

MINUTE, HOUR, DAY = 60, 3600, 86400
MINUTES_KEPT, HOURS_KEPT, KEPT = 2 * DAY, 14 * DAY, 30 * DAY
"""Seconds: then minutes become hours, hours become days, and days are deleted."""
ROLLED_UP = ((MINUTE, HOUR, MINUTES_KEPT), (HOUR, DAY, HOURS_KEPT))

_STEPS = (60, 300, 900, 3600, 4 * 3600, 86400)
_POINTS = 200
"""The default step gives at most this many points."""

What = Literal["begun", "completed", "failed", "retried", "lost", "expired", "cancelled", "deleted"]
"""What happened to a job. "begun" is timed by how long the job had waited; the others, by how long
its attempt ran. "lost": with its worker, so until that was noticed. "deleted": while it was
running."""


_SETTLED: Mapping[Status, What] = {
    "pending": "retried",
    "completed": "completed",
    "failed": "failed",
    "expired": "expired",
    "cancelled": "cancelled",
}


class Histogram(msgspec.Struct, frozen=True):
    """How long something took, in fixed buckets."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    """How many took less than each of `queuert.records.history.BOUNDS`, and not less than the one
    before. The last number: how many took longer.
    """
    seconds: float = 0.0
    """All of them together."""
    fine: Mapping[int, int] = {}
    """How many are in each fine bucket, a tenth wide: those between two neighbours of
    `queuert.records.history.FINE_BOUNDS`. What older versions have counted is missing here."""

    @property
    def count(self) -> int:
        """How many there are."""
        return sum(self.counts)

    @property
    def mean(self) -> float | None:
        """Seconds. None if there is nothing."""
        return self.seconds / self.count if self.count else None

    def quantile(self, part: float) -> float | None:
        """The seconds within which a part of them was done, estimated within its bucket. None if
        there is nothing.

        Args:
            part: How many of them, from 0 to 1: 0.95, for example.
        """
        if not 0 <= part <= 1:
            raise InvalidArgument(f"a quantile is between 0 and 1, got {part!r}")
        left = part * self.count
        for place, number in enumerate(self.counts):
            if number and left <= number:
                return self._within(place, left / number)
            left -= number
        return None

    def _within(self, place: int, part: float) -> float:
        """The seconds within which a part of one bucket was done."""
        low = BOUNDS[place - 1] if place else 0.0
        high = BOUNDS[place] if place < len(BOUNDS) else None
        fine = [(each, self.fine[each]) for each in _fine_in(place) if self.fine.get(each, 0) > 0]
        left = part * sum(number for _, number in fine)
        for each, number in fine:
            if left <= number:
                below = FINE_BOUNDS[each - 1] if each else 0.0
                above = FINE_BOUNDS[each] if each < len(FINE_BOUNDS) else below
                return below + (above - below) * left / number
            left -= number
        return low if high is None else low + (high - low) * part

    def __add__(self, other: Histogram) -> Histogram:
        counts = tuple(one + two for one, two in zip(self.counts, other.counts, strict=True))
        fine = {each: self.fine.get(each, 0) + other.fine.get(each, 0) for each in {**self.fine, **other.fine}}
        return Histogram(counts, self.seconds + other.seconds, fine)


@lru_cache(maxsize=len(BOUNDS) + 1)
def _fine_in(place: int) -> range:
    """The fine buckets of a bucket."""
    first = bisect_right(FINE_BOUNDS, BOUNDS[place - 1]) if place else 0
    return range(first, bisect_right(FINE_BOUNDS, BOUNDS[place]) if place < len(BOUNDS) else len(FINE_BOUNDS) + 1)


_NOTHING = Histogram()


class HistoryPoint(msgspec.Struct, frozen=True):
    """What happened to jobs in one step of time."""

    at: datetime
    """When the step begins."""
    begun: int = 0
    """Attempts that began. A claim that was given back before its handler began is not counted."""
    completed: int = 0
    """Jobs that were completed: a chain of three jobs counts three times."""
    failed: int = 0
    """Jobs that failed, and are not tried again."""
    retried: int = 0
    """Jobs that were put back to be tried again: after an attempt that failed, was postponed or was
    lost, or by hand."""
    expired: int = 0
    """Jobs that did not begin before their deadline."""
    cancelled: int = 0
    """Jobs that were cancelled."""
    waited: Histogram = _NOTHING
    """How long the jobs that began had been due."""
    ran: Histogram = _NOTHING
    """How long the attempts that ended took, from the claim on, however they ended; without those
    that were lost with their worker."""
    lost: int = 0
    """Attempts that were lost with their worker. They are among `retried`, too."""
    took: Histogram = _NOTHING
    """How long the attempts took that completed their jobs."""

    def __add__(self, other: HistoryPoint) -> HistoryPoint:
        return HistoryPoint(
            min(self.at, other.at),
            self.begun + other.begun,
            self.completed + other.completed,
            self.failed + other.failed,
            self.retried + other.retried,
            self.expired + other.expired,
            self.cancelled + other.cancelled,
            self.waited + other.waited,
            self.ran + other.ran,
            self.lost + other.lost,
            self.took + other.took,
        )


class History(msgspec.Struct, frozen=True):
    """What happened to jobs, in steps of time."""

    since: datetime
    """When the first step begins."""
    until: datetime
    """Now, by the database's clock. The last step is not over yet."""
    step: timedelta
    """How long each step is."""
    types: Mapping[str, list[HistoryPoint]]
    """Job type → its steps without gaps, the oldest first. Only types with jobs to which something
    happened.
    """

    def total(self) -> list[HistoryPoint]:
        """All types together, without gaps."""
        points = [HistoryPoint(at) for at in _moments(self.since, self.until, self.step)]
        for each in self.types.values():
            points = [one if two == HistoryPoint(two.at) else one + two for one, two in zip(points, each, strict=True)]
        return points


class Tally(NamedTuple):
    """To how many jobs this happened, in the step that begins at `at` (seconds since 1970).

    `seconds`: how long the timed ones took together. A number below zero corrects the count for
    jobs that had not begun after all. From `FINE` on, the bucket is a fine one: it counts jobs
    again that other tallies count.
    """

    type_name: str
    at: int
    what: What
    bucket: int
    number: int
    seconds: float


class HistoryLook(msgspec.Struct, frozen=True):
    """Tallies as they are read: `at` is the beginning of a step, and none has the same first four
    fields as another one.
    """

    now: datetime
    tallies: list[Tally]


Happened = tuple[str, int, What, float | None, int]
"""One thing that happened: job type, when (microseconds since 1970), what, `seconds` (see `Tally`;
None: it was not timed), and 1; or -1, if it did not happen after all.

There are two for each job that runs. A named tuple would take ten times as long to make.
"""


def settled_as(status: Status) -> What:
    """What happened to a job that was settled with this status."""
    return _SETTLED[status]


def tallied(happened: Iterable[Happened]) -> list[Tally]:
    """By minutes."""
    # Most events of one command differ only in their seconds. These are sorted, not looked up one
    # by one.
    alike: defaultdict[tuple[str, int, What, int], list[float | None]] = defaultdict(list)
    for type_name, at, what, seconds, number in happened:
        alike[type_name, at, what, number].append(seconds)
    found: dict[tuple[str, int, What, int], tuple[int, float]] = {}
    for (type_name, at, what, sign), all_seconds in alike.items():
        for bucket, number, took in (*_by_bucket(all_seconds), *_by_fine_bucket(all_seconds)):
            key = type_name, at // (MINUTE * 1_000_000), what, bucket
            before, so_far = found.get(key, (0, 0.0))
            found[key] = before + sign * number, so_far + sign * took
    return [
        Tally(type_name, minute * MINUTE, what, bucket, *sums)
        for (type_name, minute, what, bucket), sums in found.items()
    ]


def _by_bucket(all_seconds: Sequence[float | None]) -> Iterator[tuple[int, int, float]]:
    """Each bucket that is used, how many are in it, and their sum."""
    timed = sorted(max(seconds, 0.0) for seconds in all_seconds if seconds is not None)
    if len(timed) < len(all_seconds):
        yield UNTIMED, len(all_seconds) - len(timed), 0.0
    first = 0
    while first < len(timed):
        bucket = bisect_right(BOUNDS, timed[first])
        end = bisect_left(timed, BOUNDS[bucket], first) if bucket < len(BOUNDS) else len(timed)
        yield bucket, end - first, sum(timed[first:end])
        first = end


_BUCKETS = tuple(place for place in range(len(BOUNDS) + 1) for _ in _fine_in(place))


def bucket_of(fine: int) -> int:
    """The bucket that a fine one is a part of."""
    return _BUCKETS[fine]


def _by_fine_bucket(all_seconds: Sequence[float | None]) -> Iterator[tuple[int, int, float]]:
    numbers = Counter(bisect_right(FINE_BOUNDS, max(seconds, 0.0)) for seconds in all_seconds if seconds is not None)
    for bucket, number in numbers.items():
        yield FINE + bucket, number, 0.0


def step_for(age: float) -> int:
    """The step for a history of this many seconds, if none was given."""
    return next((step for step in _STEPS if age <= step * _POINTS and _reaches(step, age)), DAY)


def check_step(step: float) -> int:
    """Steps begin where stored tallies do, also when those have become hours and days."""
    whole = int(step)
    if whole == step and whole > 0:
        if whole % MINUTE == 0 and HOUR % whole == 0:
            return whole
        if whole % HOUR == 0 and (DAY % whole == 0 or whole % DAY == 0):
            return whole
    raise InvalidArgument(
        f"step must be whole minutes that divide an hour, whole hours that divide a day, or whole days, got {step:g} "
        "seconds"
    )


def check_reach(step: int, age: float) -> None:
    """Raise `InvalidArgument` if steps of this length are not kept for that long."""
    if age > KEPT:
        raise InvalidArgument(f"since is {age / DAY:.1f} days ago: statistics are kept for {KEPT // DAY} days")
    if not _reaches(step, age):
        days, finest = (MINUTES_KEPT // DAY, "an hour") if age <= HOURS_KEPT else (HOURS_KEPT // DAY, "a day")
        raise InvalidArgument(
            f"step is {step} seconds, and since is more than {days} days ago, for which only steps of {finest} or "
            "more are kept: ask for a longer step, or for less time"
        )


def _reaches(step: int, age: float) -> bool:
    return age <= MINUTES_KEPT or (step % HOUR == 0 and (age <= HOURS_KEPT or step % DAY == 0))


def floor(moment: float, step: int) -> int:
    """When the step that contains this moment begins."""
    return int(moment // step) * step


def history_of(look: HistoryLook, since: int, step: int) -> History:
    """From what is stored to what users see."""
    first, width = moment_of(since), timedelta(seconds=step)
    places = {at: place for place, at in enumerate(_moments(first, look.now, width))}
    types: dict[str, list[_Sums]] = {}
    for tally in look.tallies:
        place = places.get(moment_of(tally.at))
        if place is not None:  # after now: the clock was set back
            sums = types.get(tally.type_name)
            if sums is None:
                sums = types[tally.type_name] = [_Sums() for _ in places]
            sums[place].add(tally)
    points = {
        name: [each.point(at) for at, each in zip(places, sums, strict=True)] for name, sums in sorted(types.items())
    }
    return History(first, look.now, width, points)


def moment_of(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _moments(first: datetime, until: datetime, step: timedelta) -> list[datetime]:
    number = max(0, (until - first) // step) + 1
    return [first + step * place for place in range(number)]


class _Sums:
    """What happened in one step."""

    __slots__ = ("numbers", "ran", "took", "waited")

    def __init__(self) -> None:
        self.numbers: dict[What, int] = {}
        self.waited: _Timed | None = None
        self.ran: _Timed | None = None
        self.took: _Timed | None = None

    def add(self, tally: Tally) -> None:
        if tally.bucket < FINE:
            self.numbers[tally.what] = self.numbers.get(tally.what, 0) + tally.number
        if tally.bucket == UNTIMED or tally.what == "lost":
            return
        if tally.what == "begun":
            self.waited = self.waited or _Timed()
            self.waited.add(tally)
            return
        self.ran = self.ran or _Timed()
        self.ran.add(tally)
        if tally.what == "completed":
            self.took = self.took or _Timed()
            self.took.add(tally)

    def point(self, at: datetime) -> HistoryPoint:
        if not self.numbers:
            return HistoryPoint(at)
        number = self.numbers.get
        return HistoryPoint(
            at,
            # Below zero, if a process without statistics did not count what was taken back.
            max(0, number("begun", 0)),
            number("completed", 0),
            number("failed", 0),
            number("retried", 0) + number("lost", 0),
            number("expired", 0),
            number("cancelled", 0),
            _NOTHING if self.waited is None else self.waited.histogram(),
            _NOTHING if self.ran is None else self.ran.histogram(),
            number("lost", 0),
            _NOTHING if self.took is None else self.took.histogram(),
        )


class _Timed:
    __slots__ = ("counts", "fine", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.fine: dict[int, int] = {}
        self.seconds = 0.0

    def add(self, tally: Tally) -> None:
        if tally.bucket >= FINE:
            self.fine[tally.bucket - FINE] = self.fine.get(tally.bucket - FINE, 0) + tally.number
        else:
            self.counts[tally.bucket] += tally.number
            self.seconds += tally.seconds

    def histogram(self) -> Histogram:
        counts = tuple(max(0, each) for each in self.counts)
        fine = {bucket: number for bucket, number in sorted(self.fine.items()) if number > 0}
        return Histogram(counts, max(0.0, self.seconds), fine)
