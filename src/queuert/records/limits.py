"""Limits by key: what is stored of them, and which jobs may begin. No I/O, and no clock.

A *lane* is one key of one limit. Its jobs wait in line, and the lanes of a limit take turns.
docs/design/limits.md explains how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

SEPARATOR = "\x1f"
"""Between the name of a limit and a key, in the text of a lane."""
LANES_AT_ONCE = 1000
"""How many lanes of one limit a claim looks at, in adapters whose claims look at each lane that has
jobs.
"""
NAMED = 10
"""Running jobs of a lane that are named, at most."""
COUNTED = 1000
"""Waiting jobs of a lane that are counted, at most."""
ALIVE_FOR = 300.0
"""Seconds after which a declaration that no worker has repeated no longer counts. If it comes
again, it is the newest one.
"""

Change = Mapping[str, Any]
"""The fields of a rule that `set_limit` has given: `concurrency`, `rate` and `weight`."""


class RateRule(msgspec.Struct, frozen=True, array_like=True):
    """At most this many jobs begin within a period."""

    number: int
    """How many may begin."""
    per: float
    """Within any period of this many seconds."""
    smooth: bool = False
    """Evenly spaced."""


class LimitRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What applies to each key of a limit. None: no limit."""

    concurrency: int | None = None
    """How many jobs of a key may run at once."""
    rate: RateRule | None = None
    """How many may begin in a period."""
    weight: float | None = 1.0
    """A key with the weight 3 gets three turns for each turn of a key with the weight 1. None: each
    job stores a weight for its key, and the one of the first job in line counts.
    """
    ordered: bool = False
    """The next job of a key begins when the one before is completed."""


def weight_in(rule: LimitRule, first: float | None) -> float:
    """The weight of a lane. `first`: the weight that its first job has stored, if any."""
    return (1.0 if first is None else first) if rule.weight is None else rule.weight


def changed(rule: LimitRule, *changes: Change | None) -> LimitRule:
    """The rule with what was set at run time, the strongest last."""
    fields: dict[str, Any] = msgspec.to_builtins(rule)
    for change in changes:
        fields |= change or {}
    return msgspec.convert(fields, LimitRule)


class DeclaredLimit(msgspec.Struct, frozen=True):
    """A limit as a worker's code declares it, and the types of that code that it applies to."""

    name: str
    rule: LimitRule
    types: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Two workers with the same text declare the same."""
        return msgspec.json.encode((self.rule, sorted(self.types))).decode()


class KnownLimit(msgspec.Struct, frozen=True):
    """A limit that is stored, and the types that any declaration of it names."""

    name: str
    types: tuple[str, ...]


class LimitRow(msgspec.Struct, frozen=True):
    """One key of a limit, or all keys without settings of their own (then `key` is None)."""

    name: str
    """The name of the limit. A limit without a name has the name of its job type."""
    key: str | None
    """The key. None: what applies to all keys."""
    rule: LimitRule
    """The rule that applies: as declared, and as changed by `set_limit`."""
    is_set: bool
    """Whether `set_limit` has changed it for exactly this key, or for all keys."""
    running: int = 0
    """Jobs of the key that are running. Of all keys, if there is no key."""
    waiting: int = 0
    """Jobs of the key that are due: 1,000 at most. 0 if there is no key."""
    opens_at: datetime | None = None
    """When the next job may begin, if the rate or `RateLimited` has closed the key until then."""
    holder: str | None = None
    """The job that has begun and is not completed, if the limit is ordered."""
    held_by: tuple[str, ...] = ()
    """The ids of the running jobs of the key, the oldest first: 10 at most. Empty if there is no
    key."""


def lane_of(name: str, key: str) -> str:
    return f"{name}{SEPARATOR}{key}"


def split_lane(lane: str) -> tuple[str, str]:
    name, _, key = lane.partition(SEPARATOR)
    return name, key


class Begins(msgspec.Struct, frozen=True):
    """What is known of the begins of a lane: how many there were, and when the last ones were, in
    microseconds, ascending.
    """

    number: int = 0
    last: tuple[int, ...] = ()

    def room(self, rate: RateRule | None, now: int) -> tuple[int | None, int | None]:
        """How many may begin now (None: any number), and otherwise when the next one may."""
        if rate is None:
            return None, None
        if rate.smooth:
            opens = self.last[-1] + round(rate.per * 1_000_000 / rate.number) if self.last else now
            return (1, None) if opens <= now else (0, opens)
        per = round(rate.per * 1_000_000)
        # A window includes both of its ends.
        recent = [moment for moment in self.last[-rate.number :] if moment >= now - per]
        # Older ones that are no longer known, because the rate was lower, count as the oldest that
        # is known.
        unknown = min(self.number, rate.number) - len(self.last)
        if unknown > 0 and len(recent) == len(self.last):
            recent = [*self.last[:1] * unknown, *recent]
        left = rate.number - len(recent)
        return (left, None) if left > 0 else (0, recent[0] + per + 1)

    def after(self, number: int, rate: RateRule | None, now: int) -> Begins:
        """This many more have begun. Without a rate, nothing is recorded. If the clock is set back,
        the times of begins do not go back.
        """
        if rate is None or not number:
            return Begins() if rate is None else self
        moment = max(now, self.last[-1]) if self.last else now
        return Begins(self.number + number, (*self.last, *[moment] * number)[-rate.number :])


class Turn(msgspec.Struct):
    """A lane during one claim. `jobs`: the first ones of its line, each with its place in the order
    of claims (priority of the queue, priority, time, id).
    """

    lane: str
    tag: float
    weight: float
    jobs: Sequence[tuple[tuple[Any, ...], Any]]


def take_turns(turns: Iterable[Turn]) -> list[tuple[tuple[Any, ...], str, Any]]:
    """The jobs of one limit in the order of their turns: the priority of the queue, then the tag.
    The jobs of a lane follow each other at a distance of 1 / weight.
    """
    line = [
        (order[0], turn.tag + place / turn.weight, turn.lane, place, order, job)
        for turn in turns
        for place, (order, job) in enumerate(turn.jobs)
    ]
    line.sort(key=lambda each: each[:4])
    return [(order, lane, job) for _, _, lane, _, order, job in line]


def merge_turns(
    lines: Sequence[Sequence[tuple[tuple[Any, ...], str, Any]]],
    plain: Sequence[tuple[Any, ...]],
    number: int,
    take: Callable[[Any], bool],
) -> tuple[list[tuple[str, Any]], bool]:
    """Which of the limited jobs are among the first `number`, if limits and types without a limit
    compete: the head of each with the heads of the others. Also returns whether some were left.

    `take` returns False for a job that cannot be taken because of a cap.
    """
    chosen: list[tuple[str, Any]] = []
    places, beside = [0] * len(lines), 0
    while heads := [(line[places[n]][0], n) for n, line in enumerate(lines) if places[n] < len(line)]:
        if len(chosen) + beside >= number:
            return chosen, True
        order, n = min(heads)
        if beside < len(plain) and plain[beside] < order:
            beside += 1
            continue
        _, lane, job = lines[n][places[n]]
        places[n] += 1
        if take(job):
            chosen.append((lane, job))
    return chosen, False
