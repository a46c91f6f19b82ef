"""Lanes: which limited jobs may begin, and in which order lanes take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.pausing import Pausing
from queuert.adapters.sqlite.operations.rows import Row, micros
from queuert.ports.program import Program
from queuert.records.limits import (
    ALIVE_FOR,
    LANES_AT_ONCE,
    LimitRule,
    Turn,
    changed,
    merge_turns,
    take_turns,
    weight_in,
)
from queuert.records.model import Claimed

SWEPT = 50
"""Lanes that a claim tidies up."""
AT_ONCE = 300
"""Waiting jobs that a claim reads, if the first ones of each lane are enough."""

_rule = msgspec.json.Decoder(LimitRule)
change_of = msgspec.json.Decoder(dict[str, Any])


class LimitedJob(NamedTuple):
    """A job that waits in a lane."""

    rowid: int
    type_name: str
    priority: int
    scheduled_at: int
    id: str


class Taken(NamedTuple):
    """What a claim has taken of the limits. `more`: others could be taken, too. `opens_at`: when a
    lane opens whose jobs have to wait.
    """

    jobs: list[Claimed]
    more: bool = False
    opens_at: int | None = None


class Choosing(Protocol):
    """The caps of a claim."""

    def place_of(self, job: LimitedJob) -> tuple[Any, ...] | None: ...

    def take(self, job: LimitedJob) -> bool: ...


class Lane(msgspec.Struct):
    """A lane that has jobs, as it is before the claim."""

    lane: str
    tag: float | None
    begun: int
    begun_at: int | None
    closed_until: int | None
    holder: str | None
    rule: LimitRule
    first_weight: float | None = None
    """Of its first job, if the weight comes from the job."""
    room: int = 0
    only: str | None = None
    """The job that holds the lane."""
    opens_at: int | None = None
    taken: int = 0

    @property
    def weight(self) -> float:
        return weight_in(self.rule, self.first_weight)

    @property
    def closed_by_begins(self) -> int | None:
        """The last begin that does not count for the next one."""
        return None if self.rule.rate is None or self.rule.rate.smooth else self.begun - self.rule.rate.number


class Lanes(Pausing):
    def choose_limited(
        self,
        pairs: Sequence[tuple[str, str]],
        number: int,
        plain: Sequence[tuple[Any, ...]],
        caps: Choosing,
        now: int,
    ) -> Program[tuple[list[Lane], Taken]]:
        """Let the lanes take turns, as part of a claim. `pairs`: types, and the limits that their
        jobs may be stored with. The lanes are for `store_lanes`, after the jobs were taken.
        """
        lanes: list[Lane] = []
        lines: list[list[tuple[tuple[Any, ...], str, LimitedJob]]] = []
        for name in sorted({name for _, name in pairs}):
            of_limit = yield from self._lanes_of(name, number, now)
            lanes += of_limit
            types = [type_name for type_name, limit in pairs if limit == name]
            lines.append((yield from self._line(of_limit, types, number, caps)))
        chosen, more = merge_turns(lines, plain, number, caps.take)
        by_name = {each.lane: each for each in lanes}
        for lane, job in chosen:
            by_name[lane].taken += 1
            by_name[lane].holder = job.id if by_name[lane].rule.ordered else None
        opens = [each.opens_at for each in lanes if each.opens_at is not None]
        return lanes, Taken([], more, min(opens, default=None))

    def _line(
        self, lanes: Sequence[Lane], types: Sequence[str], number: int, caps: Choosing
    ) -> Program[list[tuple[tuple[Any, ...], str, LimitedJob]]]:
        """The jobs of a limit in the order of their turns: at least this many, if they exist."""
        floor = min((each.tag for each in lanes if each.tag is not None), default=0.0)
        for each in lanes:
            if not each.room:
                each.tag = None
            elif each.tag is None:
                each.tag = floor + 1 / each.weight
        in_turn = sorted((each for each in lanes if each.tag is not None), key=lambda each: (each.tag, each.lane))
        turns: list[Turn] = []
        # Jobs of lanes whose turns come later cannot come first: each lane before them has one.
        while in_turn and sum(len(turn.jobs) for turn in turns) < number:
            part, in_turn = in_turn[:number], in_turn[number:]
            turns += yield from self._heads(part, types, number, caps)
        return take_turns(turns)

    def _heads(self, lanes: Sequence[Lane], types: Sequence[str], number: int, caps: Choosing) -> Program[list[Turn]]:
        """The first jobs of lanes: this many together, or all that may begin."""
        asked, kinds = array([(each.lane, each.only) for each in lanes]), array(list(types))
        most = number if number * len(lanes) <= AT_ONCE else 1 + 2 * number // len(lanes)
        while True:
            rows: list[tuple[int, int, str, int, int, str]] = yield self.statement(
                "limits.heads", lanes=asked, types=kinds, number=most
            )
            jobs: dict[int, list[LimitedJob]] = {}
            for place, *fields in rows:
                jobs.setdefault(place, []).append(LimitedJob(*fields))  # type: ignore[arg-type]
            turns = [
                Turn(
                    each.lane,
                    each.tag or 0.0,
                    each.weight,
                    [(order, job) for job in jobs.get(place, ()) if (order := caps.place_of(job)) is not None][
                        : each.room
                    ],
                )
                for place, each in enumerate(lanes)
            ]
            more = any(len(line) == most < lanes[place].room for place, line in jobs.items())
            if not more or most >= number or sum(len(turn.jobs) for turn in turns) >= number:
                return turns
            most = min(number, most * 4)

    def _lanes_of(self, name: str, number: int, now: int) -> Program[list[Lane]]:
        """The lanes of a limit that have jobs, `LANES_AT_ONCE` at most: the next claim goes on from
        there.
        """
        first, end = f"{name}\x1e", f"{name} "
        found: list[str] = []
        after = self.cursors.get(name, first)
        while True:
            left = LANES_AT_ONCE - len(found)
            rows: list[Row] = yield self.statement("limits.waiting", after=after, end=end, number=left)
            found += [row[0] for row in rows]
            if len(rows) == left or after == first:
                break
            after, end = first, f"{after}\x01"
        self.cursors[name] = found[-1] if len(found) == LANES_AT_ONCE else first
        if not found:
            return []
        rule = yield from self.limit_rule(name)
        running = yield from self.running_lanes()
        rows = yield self.statement("limits.states", lanes=array(found))
        lanes = [
            Lane(lane, tag, begun or 0, begun_at, closed, holder, changed(rule, change and change_of.decode(change)))
            for lane, tag, begun, begun_at, closed, holder, change in rows
        ]
        weighted = [each for each in lanes if each.rule.weight is None]
        if weighted:
            weights: list[tuple[str, float]] = yield self.statement(
                "limits.weights", lanes=array([each.lane for each in weighted])
            )
            of_first = dict(weights)
            for each in weighted:
                each.first_weight = of_first.get(each.lane)
        pauses = yield from self.list_pauses()
        paused = {pause.target.name: pause.until for pause in pauses if pause.target.scope == "key"}
        for each in lanes:
            each.room = number
            if each.rule.concurrency is not None:
                each.room = max(0, min(number, each.rule.concurrency - len(running.get(each.lane, ()))))
            if each.closed_until is not None and each.closed_until > now:
                each.room, each.opens_at = 0, each.closed_until
            elif each.lane in paused:
                until = paused[each.lane]
                each.room, each.opens_at = 0, None if until is None else micros(until)
            elif each.room and each.rule.ordered and each.holder is not None:
                yield from self.hold_lane(each)
        yield from self.heed_rates(lanes, now)
        return lanes

    def hold_lane(self, lane: Lane) -> Program[None]:
        """Only the job that holds an ordered lane may begin, or a continuation of it."""
        job_id = lane.holder
        lane.holder = None
        while job_id is not None:
            rows: list[tuple[str, str, str | None, str | None, int | None]] = yield self.statement(
                "limits.holder", id=job_id
            )
            if not rows or rows[0][2] != lane.lane or rows[0][1] in ("cancelled", "expired"):
                return
            _, status, _, following, ready = rows[0]
            if status == "completed":
                job_id = following
                continue
            lane.holder = lane.only = job_id
            lane.room = int(status == "pending" and bool(ready))
            return

    def heed_rates(self, lanes: Sequence[Lane], now: int) -> Program[None]:
        open_lanes = [each for each in lanes if each.room and each.rule.rate is not None]
        for each in open_lanes:
            rate = each.rule.rate
            assert rate is not None
            each.room = min(each.room, 1 if rate.smooth else rate.number)
            if rate.smooth and each.begun_at is not None:
                opens = each.begun_at + round(rate.per * 1_000_000 / rate.number)
                if opens > now:
                    each.room, each.opens_at = 0, opens
        asked = [
            (each.lane, each.closed_by_begins, each.room) for each in open_lanes if each.closed_by_begins is not None
        ]
        if not asked:
            return
        rows: list[tuple[str, int, int, int]] = yield self.statement("limits.begins", lanes=array(asked))
        counting: dict[str, list[int]] = {}
        oldest: dict[str, tuple[int, int]] = {}
        for lane, counts, seq, at in rows:
            if counts:
                counting.setdefault(lane, []).append(at)
            else:
                oldest[lane] = (seq, at)
        for each in open_lanes:
            before, rate = each.closed_by_begins, each.rule.rate
            if before is None or rate is None or each.lane not in oldest:
                continue
            since = now - round(rate.per * 1_000_000)
            recent = sorted(at for at in counting.get(each.lane, ()) if at >= since)
            seq, at = oldest[each.lane]
            # Begins that are no longer known, because the rate was another one, count as the oldest
            # that is.
            unknown = min(seq - 1, before + each.room) - max(before, 0)
            if unknown > 0 and at >= since:
                recent = [*[at] * unknown, *recent]
            each.room -= len(recent)
            if each.room <= 0:
                each.room, each.opens_at = 0, recent[0] + round(rate.per * 1_000_000) + 1

    def store_lanes(self, lanes: Sequence[Lane], now: int) -> Program[None]:
        """What has changed by the claim: turns, begins and holders."""
        begins: list[tuple[str, int, int]] = []
        known: list[tuple[str, int]] = []
        stored: list[tuple[Any, ...]] = []
        for each in lanes:
            rate = each.rule.rate
            if each.taken and each.tag is not None:
                each.tag += each.taken / each.weight
                each.room -= each.taken
            if each.taken and rate is not None:
                # A clock that is set back does not move the begins.
                each.begun_at = max(now, each.begun_at or now)
                begins += [(each.lane, each.begun + place, each.begun_at) for place in range(1, each.taken + 1)]
                each.begun += each.taken
            if each.begun:
                known.append((each.lane, each.begun - (0 if rate is None else rate.number)))
            if rate is None:
                each.begun, each.begun_at = 0, None
            tag = each.tag if each.room > 0 else None
            until = None if rate is None or each.begun_at is None else each.begun_at + round(rate.per * 1_000_000)
            stored.append((each.lane, tag, each.begun, each.begun_at, each.closed_until, each.holder, until))
        if begins:
            yield self.statement("limits.begin", begins=array(begins))
        if known:
            yield self.statement("limits.forget", lanes=array(known))
        if stored:
            yield self.statement("limits.store", lanes=array(stored))
        yield from self._sweep(now)

    def _sweep(self, now: int) -> Program[None]:
        """Look at some lanes with each claim: their jobs may have been cancelled or deleted."""
        after = self.cursors.get("", "")
        rows: list[tuple[str]] = yield self.statement("limits.some", after=after, number=SWEPT)
        self.cursors[""] = rows[-1][0] if len(rows) == SWEPT else ""
        if not rows:
            return
        lanes = array([lane for (lane,) in rows])
        yield self.statement("limits.close_empty", lanes=lanes)
        dropped: list[tuple[str]] = yield self.statement("limits.drop", lanes=lanes, now=now)
        if dropped:
            yield self.statement("limits.drop_begins", lanes=array([lane for (lane,) in dropped]))

    def running_lanes(self) -> Program[dict[str, list[str]]]:
        """The running jobs of each lane, the oldest first."""
        rows: list[tuple[str, str]] = yield self.statement("limits.running")
        found: dict[str, list[str]] = {}
        for lane, job_id in rows:
            found.setdefault(lane, []).append(job_id)
        return found

    def limit_rule(self, name: str) -> Program[LimitRule]:
        ((declared, change),) = yield self.statement(
            "limits.rule", limit_name=name, alive=self.now() - round(ALIVE_FOR * 1_000_000)
        )
        rule = LimitRule() if declared is None else _rule.decode(declared)
        return changed(rule, None if change is None else change_of.decode(change))
