"""Random programs with limits by key, checked by counting: what a claim takes is exactly what its rules allow.

After each step all jobs are read. From these, and from what the program has done, it is computed which jobs may begin.
A claim for everything must take exactly those: one job more breaks a limit, one job less is forgotten.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.machine.driver import Driver
from tests.machine.exploring import Explored, exploring
from tests.machine.test_machine import ALWAYS
from tests.machine.world import ALL, Clock

from queuert.base.statuses import REPAIRABLE
from queuert.records.limits import Change, DeclaredLimit, LimitRule, RateRule, changed, lane_of, split_lane
from queuert.records.listings import JobFilter
from queuert.records.model import Claimed, ClaimResult, JobRow, NewJob, Settlement, TypeLimit, When
from queuert.records.pauses import PauseTarget
from queuert_conformance.state.build import queue, request

TYPES = ("a", "b")
RULES = {
    "at once": LimitRule(2),
    "in order": LimitRule(1, ordered=True),
    "in a time": LimitRule(None, RateRule(2, 10.0)),
    "smooth": LimitRule(3, RateRule(2, 1.0, smooth=True), weight=None),
    "in order, in a time": LimitRule(1, RateRule(3, 10.0), ordered=True),
}
KEYS = ("x", "y")
LANES = tuple(lane_of(name, key) for name in RULES for key in KEYS)
CHANGES: tuple[Change, ...] = (
    {"concurrency": 1},
    {"concurrency": 3, "rate": RateRule(5, 60.0)},
    {"rate": RateRule(1, 10.0)},
    {"rate": None},
    {"weight": 4.0},
)
ERROR = b'{"code":"X"}'
FOR_EVERYTHING = 10_000


class World(Explored):
    def __init__(self, driver: Driver, clock: Clock, dice: random.Random) -> None:
        super().__init__(driver, clock, dice)
        self.claims: list[Claimed] = []
        self.changes: dict[tuple[str, str | None], Change] = {}
        self.paused: dict[str, datetime | None] = {}
        self.closed: dict[str, datetime] = {}
        self.holders: dict[str, str] = {}
        self.begins: dict[str, list[tuple[datetime, RateRule]]] = {}
        """Of each lane: the moments, and the rate that held."""
        self.rated_since: dict[str, datetime] = {}
        """When the rate of a lane was last changed."""
        self.jobs: dict[str, JobRow] = {}
        self.lanes_before: dict[str, set[str | None]] = {}
        """Lanes that jobs have had before."""
        self.taken = 0
        declared = [DeclaredLimit(name, rule, TYPES) for name, rule in RULES.items()]
        self.run(self.operations.declare_limits(TYPES, declared, alive_for=1e9))

    def look(self) -> None:
        rows: list[JobRow] = self.run(self.operations.list_jobs(JobFilter(), ALL)).rows
        self.jobs = {row.id: row for row in rows}

    def step(self) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (6, self.start),
            (3, self.claim_some),
            (3, self.claim_everything),
            (8, self.settle),
            (3, self.wait),
            (2, self.set_limit),
            (1, self.clear_limit),
            (1, self.pause),
            (1, self.resume),
            (3, self.change),
            (2, self.repair),
            (1, self.cancel_failed),
            (1, self.reap),
            (1, self.undone),
        ]
        self.dice.choice([act for weight, act in acts for _ in range(weight)])()
        self.look()
        self.check_running()

    # Steps

    def start(self) -> None:
        dice, name = self.dice, self.dice.choice(TYPES)
        open_chains = [row for row in self.jobs.values() if row.chain_index == 0 and row.status == "pending"]
        blockers = dice.sample(open_chains, min(len(open_chains), dice.choice((0, 0, 0, 0, 1))))
        self.start_chain(
            name,
            blockers,
            priority=dice.choice((1, 100, 100)),
            schedule=When(after=dice.choice((0, 0, 0, 1, 30))),
            lane=dice.choice((None, *LANES, *LANES)),
            weight=dice.choice((None, 0.5, 3.0)),
        )

    def claim_some(self) -> None:
        dice = self.dice
        limits = tuple(TypeLimit(name, dice.choice((1, 2, 100)), 30.0, tuple(RULES)) for name in TYPES)
        asked = queue(*limits, max_concurrency=dice.choice((None, None, 6)))
        result = self.run(self.operations.claim(request(asked, limit=dice.choice((1, 2, 5)))))
        self.check_numbers(result)
        for claimed in result.jobs:
            self.begun(claimed)

    def check_numbers(self, result: ClaimResult) -> None:
        for lane in {each.job.lane for each in result.jobs if each.job.lane is not None}:
            mine = [each.job for each in result.jobs if each.job.lane == lane]
            room = self.room(lane)
            assert room is None or len(mine) <= room[0], (lane, len(mine), room)
            if room is not None and room[1] is not None:
                assert [job.id for job in mine] == [room[1]], f"{lane} is held by {room[1]}"

    def claim_everything(self, *, inside: bool = False) -> None:
        expected = {job.id for lane in LANES for job in self.allowed(lane)}
        expected |= {row.id for row in self.due() if row.lane is None}
        result = self.ask_for_everything(inside=inside)
        exact = {each.job.id for each in result.jobs if each.job.lane not in self.rated_since}
        assert exact == expected, self.explained(result, expected)
        self.check_numbers(result)
        for claimed in result.jobs:
            self.begun(claimed)
        self.look_inside(inside)
        # A claim that finds nothing must not be asked again at once, and must be in time.
        again = self.ask_for_everything(inside=inside)
        assert (again.jobs, again.more) == ([], False)
        opens = min((at for lane in LANES if (at := self.opens(lane)) is not None), default=None)
        if opens is not None:
            assert again.next_in is not None, f"nobody wakes up at {opens}, now is {self.clock.now}"
            assert again.next_in <= (opens - self.clock.now).total_seconds() + 0.000_002

    def ask_for_everything(self, *, inside: bool) -> ClaimResult:
        types = queue(*(TypeLimit(name, FOR_EVERYTHING, 30.0, tuple(RULES)) for name in TYPES))
        result: ClaimResult = self.run(self.operations.claim(request(types, limit=FOR_EVERYTHING)), inside=inside)
        return result

    def look_inside(self, inside: bool) -> None:
        rows: list[JobRow] = self.run(self.operations.list_jobs(JobFilter(), ALL), inside=inside).rows
        self.jobs = {row.id: row for row in rows}

    def undone(self) -> None:
        """A claim that is rolled back: neither its jobs nor its begins count."""
        before = (
            list(self.claims),
            dict(self.holders),
            {lane: list(each) for lane, each in self.begins.items()},
            self.jobs,
        )
        self.driver.begin()
        try:
            self.claim_everything(inside=True)
        finally:
            self.driver.end(undo=True)
        self.claims, self.holders, self.begins, self.jobs = before

    def settle(self) -> None:
        if not self.claims:
            return
        claimed, dice = self.claims.pop(self.dice.randrange(len(self.claims))), self.dice
        row = claimed.job
        how: dict[str, Any] = {"job_id": row.id, "token": row.token}
        what = dice.choice(("completed", "completed", "continued", "failed", "back", "closes", "later"))
        held = self.is_running(claimed)
        if what == "completed":
            self.put(Settlement(status="completed", output=b"1", **how))
        elif what == "continued":
            lane = dice.choice((row.lane, None, dice.choice(LANES)))
            job = NewJob(
                id=self.ids.new(), type_name=row.type_name, chain_id=row.chain_id, chain_type=row.chain_type,
                chain_index=row.chain_index + 1, input=b"{}", lane=lane, schedule=When(after=dice.choice((0, 0, 5))),
            )  # fmt: skip
            self.put(Settlement(status="completed", continuation=job, **how))
        elif what == "failed":
            self.put(Settlement(status="failed", error=ERROR, **how))
        elif what == "back":
            self.put(Settlement(status="pending", give_back=True, **how))
        elif what == "closes":
            seconds = dice.choice((1.0, 10.0))
            self.put(Settlement(status="pending", give_back=True, closes=seconds, **how))
            if row.lane is not None and held:
                until = self.clock.now + timedelta(seconds=seconds)
                self.closed[row.lane] = max(until, self.closed.get(row.lane, until))
        else:
            self.put(Settlement(status="pending", uncounted=True, schedule=When(after=5.0), **how))

    def put(self, settlement: Settlement) -> None:
        settlements = [settlement]
        if self.claims and self.dice.random() < 0.3:  # in a group, with one that ends, too
            other = self.claims.pop()
            settlements.append(Settlement(job_id=other.job.id, token=other.job.token, status="completed", output=b"1"))
        self.run(self.operations.settle(settlements))

    def is_running(self, claimed: Claimed) -> bool:
        row = self.jobs.get(claimed.job.id)
        return row is not None and row.status == "running" and row.token == claimed.job.token

    def reap(self) -> None:
        self.run(self.operations.reap(TYPES, [], 3, ERROR, self.dice.choice(([], ["worker-1"]))))

    def wait(self) -> None:
        self.clock.advance(timedelta(seconds=self.dice.choice((0.000001, 0.5, 1, 5, 10, 10.000001, 60))))

    def change(self) -> None:
        ids = self.dice.sample(sorted(self.jobs), min(len(self.jobs), self.dice.choice((1, 1, 3))))
        chains = [self.jobs[job_id].chain_id for job_id in ids]
        operations = self.operations
        self.run(
            self.dice.choice((
                lambda: operations.trigger(ids),
                lambda: operations.retry(ids),
                lambda: operations.retry([row.id for row in self.jobs.values() if row.status == "failed"][:2]),
                lambda: operations.set_priority(ids, self.dice.choice((1, 50, 100))),
                lambda: operations.cancel_chains(chains, cascade=False),
                lambda: operations.delete_chains(chains, cascade=True),
            ))()
        )  # fmt: skip

    def repair(self) -> None:
        """A job that ended badly gets another lane, or keeps the one that it has stopped."""
        dead = [row for row in self.jobs.values() if row.status in REPAIRABLE]
        if not dead:
            return
        row = self.dice.choice(dead)
        # If it comes back to a lane that it held once, it depends on the claims between whether it holds it again.
        unclear = set(self.lanes_before.get(row.id, ()))
        if row.status != "failed" and row.last_attempt_at is not None:
            unclear.add(row.lane)
        lane = self.dice.choice([each for each in (row.lane, row.lane, None, *LANES) if each not in unclear] or [None])
        if lane != row.lane:
            self.lanes_before.setdefault(row.id, set()).add(row.lane)
        made = self.run(self.operations.repair(row.id, b"{}", None, lane, self.dice.choice((None, 0.5, 3.0))))
        assert (made.lane, made.status) == (lane, "pending")

    def cancel_failed(self) -> None:
        """Exactly those that stop their lane are cancelled."""
        failed = [row for row in self.jobs.values() if row.status == "failed"]
        stopping = {row.chain_id for row in failed if self.stops(row)}
        cancelled = self.run(self.operations.cancel_chains([row.chain_id for row in failed], cascade=False))
        assert {chain.first.id for chain in cancelled.chains} == stopping

    def stops(self, row: JobRow) -> bool:
        holder = None if row.lane is None or not self.rule(row.lane).ordered else self.holder(row.lane)
        return holder is not None and holder.id == row.id

    def set_limit(self) -> None:
        name, key = self.limit()
        change = self.dice.choice(CHANGES)
        if RULES[name].ordered:
            change = {field: value for field, value in change.items() if field != "concurrency"} or {"weight": 2.0}
        self.run(self.operations.set_limit(name, key, change))
        self.changed_to(name, key, {**self.changes.get((name, key), {}), **change})

    def clear_limit(self) -> None:
        name, key = self.limit()
        self.run(self.operations.clear_limit(name, key))
        self.changed_to(name, key, {})

    def limit(self) -> tuple[str, str | None]:
        return self.dice.choice(sorted(RULES)), self.dice.choice((None, *KEYS, *KEYS))

    def changed_to(self, name: str, key: str | None, change: Change) -> None:
        before = {lane: self.rule(lane) for lane in LANES}
        self.changes[name, key] = change
        for lane in LANES:
            if self.rule(lane).rate != before[lane].rate:
                self.rated_since[lane] = self.clock.now

    def pause(self) -> None:
        lane, seconds = self.dice.choice(LANES), self.dice.choice((None, 10.0))
        until = None if seconds is None else When(after=seconds)
        self.run(self.operations.pause(PauseTarget("key", lane), until=until))
        self.paused[lane] = None if seconds is None else self.clock.now + timedelta(seconds=seconds)

    def resume(self) -> None:
        if self.paused:
            lane = self.dice.choice(sorted(self.paused))
            del self.paused[lane]
            self.run(self.operations.resume(PauseTarget("key", lane)))

    # The rules, by counting

    def rule(self, lane: str) -> LimitRule:
        name, key = split_lane(lane)
        return changed(RULES[name], self.changes.get((name, None)), self.changes.get((name, key)))

    def due(self) -> list[JobRow]:
        found = [row for row in self.jobs.values() if row.status == "pending" and row.scheduled_at <= self.clock.now]
        return sorted(found, key=lambda row: (row.priority, row.scheduled_at, row.id))

    def line(self, lane: str) -> list[JobRow]:
        return [row for row in self.due() if row.lane == lane]

    def is_shut(self, lane: str) -> bool:
        closed = self.closed.get(lane)
        return (closed is not None and closed > self.clock.now) or self.is_paused(lane)

    def is_paused(self, lane: str) -> bool:
        return lane in self.paused and ((until := self.paused[lane]) is None or until > self.clock.now)

    def holder(self, lane: str) -> JobRow | None:
        row = self.jobs.get(self.holders.get(lane, ""))
        while row is not None and row.lane == lane and row.status == "completed":
            row = self.jobs.get(row.continued_to or "")
        return None if row is None or row.lane != lane or row.status in ("cancelled", "expired") else row

    def room(self, lane: str) -> tuple[float, str | None] | None:
        """How many may begin, and which one alone; None if the rate was changed so that it is not known exactly."""
        rule, now = self.rule(lane), self.clock.now
        room = float("inf")
        only = None
        running = sum(row.status == "running" and row.lane == lane for row in self.jobs.values())
        if rule.concurrency is not None:
            room = max(0, rule.concurrency - running)
        if rule.ordered and (holder := self.holder(lane)) is not None:
            only = holder.id
            room = min(room, holder.status == "pending" and holder.scheduled_at <= now)
        if lane in self.rated_since:
            return None
        if rule.rate is not None:
            room = min(room, self.left(lane, rule.rate))
        return (0 if self.is_shut(lane) else room), only

    def left(self, lane: str, rate: RateRule) -> int:
        begins, now = self.begins.get(lane, []), self.clock.now
        if rate.smooth:
            return int(not begins or begins[-1][0] + timedelta(seconds=rate.per / rate.number) <= now)
        return rate.number - sum(at >= now - timedelta(seconds=rate.per) for at, _ in begins)

    def allowed(self, lane: str) -> list[JobRow]:
        """The jobs of a lane that a claim for everything takes."""
        line, room = self.line(lane), self.room(lane)
        if room is None:
            return []  # only that no more begin is checked
        number, only = room
        if only is not None:
            line = [row for row in line if row.id == only]
        return line[: int(min(number, len(line)))]

    def opens(self, lane: str) -> datetime | None:
        """When the next job of a lane that has jobs may begin, if only time is in the way."""
        rule, line, now = self.rule(lane), self.line(lane), self.clock.now
        if not line or lane in self.rated_since:
            return None
        running = sum(row.status == "running" and row.lane == lane for row in self.jobs.values())
        if rule.concurrency is not None and running >= rule.concurrency:
            return None
        if rule.ordered and (holder := self.holder(lane)) is not None and holder.id not in {row.id for row in line}:
            return None
        times = [self.closed[lane]] if lane in self.closed and self.closed[lane] > now else []
        if self.is_paused(lane):
            until = self.paused[lane]
            if until is None:
                return None
            times.append(until)
        if rule.rate is not None and self.left(lane, rule.rate) <= 0:
            moments = [at for at, _ in self.begins[lane]]
            per = timedelta(seconds=rule.rate.per)
            if rule.rate.smooth:
                times.append(moments[-1] + per / rule.rate.number)
            else:
                times.append(moments[-rule.rate.number] + per + timedelta(microseconds=1))
        return max(times, default=None)

    def begun(self, claimed: Claimed) -> None:
        job = claimed.job
        self.claims.append(claimed)
        self.taken += 1
        if job.lane is not None:
            rule = self.rule(job.lane)
            if rule.ordered:
                self.holders[job.lane] = job.id
            if rule.rate is not None:
                self.begins.setdefault(job.lane, []).append((self.clock.now, rule.rate))

    def check_running(self) -> None:
        """No window holds more begins than the rate that all of them were made under."""
        for lane, begins in self.begins.items():
            for place, (at, rate) in enumerate(begins):
                same = [each for each, other in begins[place:] if other == rate]
                if not rate.smooth and all(other == rate for _, other in begins[place : place + rate.number + 1]):
                    inside = sum(each <= at + timedelta(seconds=rate.per) for each in same)
                    assert inside <= rate.number, f"{lane}: {inside} begins in {rate.per} s"

    def explained(self, result: ClaimResult, expected: set[str]) -> str:
        got = {each.job.id for each in result.jobs}
        wrong = {job_id: self.jobs[job_id].lane for job_id in got ^ expected}
        return f"too many: {sorted(got - expected)}, forgotten: {sorted(expected - got)}, lanes: {wrong}"

    def end(self) -> None:
        """When all is done, nothing is left over."""
        for lane in sorted(self.paused):
            self.run(self.operations.resume(PauseTarget("key", lane)))
        for name in RULES:
            for key in (None, *KEYS):
                self.run(self.operations.clear_limit(name, key))
        for _ in range(500):
            self.look()
            if not any(row.status in ("pending", "running") for row in self.jobs.values()):
                break
            self.clock.advance(timedelta(seconds=61))
            self.run(self.operations.reap(TYPES, [], 1000, ERROR, []))
            waiting, failed = (
                [row.chain_id for row in self.jobs.values() if row.status == status] for status in ("blocked", "failed")
            )
            self.run(self.operations.cancel_chains(waiting, cascade=False))
            self.run(self.operations.delete_chains([*waiting, *failed], cascade=False))
            claimed = self.ask_for_everything(inside=False).jobs
            done = [Settlement(job_id=e.job.id, token=e.job.token, status="completed", output=b"1") for e in claimed]
            self.run(self.operations.settle(done))
        left = [row for row in self.jobs.values() if row.status in ("pending", "running")]
        assert not left, f"{len(left)} jobs are never claimed, first: {left[0]}"
        rows = self.run(self.operations.list_limits(1000, None))
        assert [(row.running, row.waiting) for row in rows if row.running or row.waiting] == []
        for part in (*self.operations.parts, *self.operations.full_parts):
            assert self.run(self.operations.examine(part, None, 1000, 5.0)).damages == []


def explore(name: str, seed: int, steps: int) -> int:
    with exploring(World, name, seed) as world:
        for _ in range(steps):
            world.step()
        world.end()
        return world.taken


@pytest.mark.parametrize("name", ALWAYS)
def test_a_claim_takes_what_the_rules_allow(name: str) -> None:
    taken = sum(explore(name, seed, 120) for seed in range({"memory": 15, "sqlite": 8}.get(name, 4)))
    assert taken > 50


@pytest.mark.soak
@pytest.mark.parametrize("name", ALWAYS)
def test_many_programs(name: str) -> None:
    for seed in range(1000, 1000 + {"memory": 1000, "sqlite": 300}.get(name, 150)):
        explore(name, seed, 200)
