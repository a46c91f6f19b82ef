"""Claims: promote what has become due, read the first jobs of each type, choose, take."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.counting import Counting
from queuert.adapters.sqlite.operations.lanes import LimitedJob, Taken
from queuert.adapters.sqlite.operations.limiting import Limiting
from queuert.adapters.sqlite.operations.rows import DUE, TYPE, Row, add_seconds, job_of, moment
from queuert.adapters.sqlite.operations.workers import Workers
from queuert.ports.program import Program
from queuert.records.failed_attempts import KEPT, told
from queuert.records.model import (
    ALONE_AFTER,
    NO_DELAYS,
    NOT_BEGUN,
    Claimed,
    ClaimRequest,
    ClaimResult,
    JobRow,
    Lease,
    QueueLimit,
)
from queuert.records.pauses import Pause, in_the_way, is_paused, sooner

PROMOTED_AT_ONCE = 5000
"""Jobs of each type that one claim promotes, in about 15 ms. If more jobs become due at one moment,
they become ready over the next claims, longest due first. Until then priorities apply among the
jobs that are ready."""

_Running = list[tuple[str | None, str, int]]
"""Queue, type, and how many of these are running."""


class Claiming(Limiting, Workers, Counting):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        if not any(queue.types for queue in request.queues):
            return ClaimResult([], more=False)
        return (yield from together(self._claim(request)))

    def _claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        now = self.now()
        lanes = [(limit.name, queue.name) for queue in request.queues for limit in queue.types]
        paused = in_the_way((yield from self.list_pauses()), lanes)
        limited = Taken([])
        if any(limit.limits for queue in request.queues for limit in queue.types):
            limited = yield from self._claim_limited(request, paused, now)
            request = request.after(len(limited.jobs))
        running = yield from self._running(request)
        choice = yield from self._find(request, running, paused, now)
        jobs = (yield from self._take(request, choice.taken, now)) if choice.taken else []
        jobs = [*limited.jobs, *jobs]
        if choice.more or limited.more:
            return ClaimResult(jobs, more=True, paused=paused)
        names = {name for name, queue in lanes if not is_paused(paused, name, queue)}
        due: list[Row] = yield self.statement("claim.next", types=array(list(names)), now=now)
        moments = [row[0] for row in due] + ([] if limited.opens_at is None else [limited.opens_at])
        next_in = sooner((min(moments) - now) / 1_000_000 if moments else None, paused, moment(now))
        return ClaimResult(jobs, more=False, next_in=next_in, paused=paused)

    def _claim_limited(self, request: ClaimRequest, paused: Sequence[Pause], now: int) -> Program[Taken]:
        """The jobs with a limit, which come first."""
        running = yield from self._running(request)
        choice = _Choice(request, running, paused, now)
        slots = request.limit if request.slots is None else request.slots
        number = max(0, min(request.limit, slots, choice.cluster_room))
        served = {lane.type_name for lane in choice.lanes}
        yield self.statement("claim.promote", types=array(list(served)), now=now, bound=max(PROMOTED_AT_ONCE, number))
        pairs = [
            (limit.name, name)
            for queue in request.queues
            for limit in queue.types
            for name in limit.limits
            if limit.name in served
        ]
        asked = array([(lane.type_name, lane.priority) for lane in choice.lanes])
        plain: list[tuple[int, int, int, str]] = yield self.statement(
            "limits.beside", types=asked, now=now, number=max(0, request.limit)
        )
        lanes, found = yield from self.choose_limited(pairs, number, plain, choice, now)
        jobs = (yield from self._take(replace(request, at_once=None), choice.taken, now)) if choice.taken else []
        yield from self.store_lanes(lanes, now)
        return Taken(jobs, found.more, found.opens_at)

    def _take(self, request: ClaimRequest, taken: Mapping[int, _Lane], now: int) -> Program[list[Claimed]]:
        rows: list[Row] = yield self.statement(
            "claim.take",
            taken=array([(rowid, lane.leased_until, request.queues[lane.queue].name) for rowid, lane in taken.items()]),
            now=now,
            worker=request.worker,
            first_token=request.first_token,
            at_once=request.at_once,
            first_ordinal=request.first_ordinal,
        )
        jobs = sorted(((job_of(row[:-1]), row[-1] is not None) for row in rows), key=lambda each: each[0].token or 0)
        if self.statistics:
            yield from self.count([(row[TYPE], now, "begun", (now - row[DUE]) / 1_000_000, 1) for row in rows])
        blockers = yield from self.job_blockers([job.id for job, _ in jobs])
        at_once = len(jobs) if request.at_once is None else request.at_once
        return [
            Claimed(
                job,
                job.deadline is not None and job.deadline <= moment(now),
                tuple(its_blockers),
                _ordinal(job, request.first_ordinal + place if place >= at_once else None),
                ran_before,
            )
            for place, ((job, ran_before), its_blockers) in enumerate(zip(jobs, blockers, strict=True))
        ]

    def _running(self, request: ClaimRequest) -> Program[_Running]:
        """The running jobs, if a cap counts them. A cap of 0 needs no count."""
        if not request.cluster_cap and not any(queue.max_concurrency for queue in request.queues):
            return []
        rows: _Running = yield self.statement("claim.running")
        return rows

    def _find(self, request: ClaimRequest, running: _Running, paused: Sequence[Pause], now: int) -> Program[_Choice]:
        """Read the first jobs of each type, and more of them if those do not decide the choice."""
        choice = _Choice(request, running, paused, now)
        if not choice.lanes or choice.cluster_room <= 0:
            return choice
        # One more than can be taken shows whether there is more.
        enough = max(0, min(request.limit, choice.cluster_room)) + 1
        names = array(list({lane.type_name for lane in choice.lanes}))
        yield self.statement("claim.promote", types=names, now=now, bound=max(PROMOTED_AT_ONCE, enough))
        # If each lane alone may fill the claim, no candidate is skipped, and the first ones
        # suffice.
        total = enough if all(choice.room(lane) >= enough for lane in choice.lanes) else -1
        lanes = array([(lane.type_name, lane.priority) for lane in choice.lanes])
        head = 8 + 2 * enough // len(choice.lanes)
        while True:
            head = min(head, enough)
            rows: list[tuple[int, int, int]] = yield self.statement(
                "claim.candidates", types=lanes, now=now, head=head, total=total
            )
            if choice.choose(rows, head if head < enough else sys.maxsize):
                return choice
            head *= 4
            choice = _Choice(request, running, paused, now)

    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        if not leases:
            return []
        now = self.now()
        wanted = {(lease.job_id, lease.token): add_seconds(now, lease.duration) for lease in leases}
        items = [(job_id, token, until) for (job_id, token), until in wanted.items()]
        rows: list[Row] = yield self.statement("renew.extend", leases=array(items))
        renewed = {(row[0], row[1]) for row in rows}
        return [lease.job_id for lease in leases if (lease.job_id, lease.token) not in renewed]

    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:  # noqa: ARG002
        rows: list[Row] = yield self.statement("renew.hold", id=job_id, token=token)
        return bool(rows)

    def begin_alone(self, job_id: str, token: int) -> Program[bool]:
        rows: list[Row] = yield self.statement("renew.begin_alone", id=job_id, token=token)
        return bool(rows)

    def reap(
        self,
        types: Sequence[str],
        ignored: Sequence[str],
        limit: int,
        error: bytes,
        dead: Sequence[str] = (),
        delays: Mapping[str, Sequence[float]] = NO_DELAYS,
    ) -> Program[list[JobRow]]:
        if not types or limit <= 0:
            return []
        now = self.now()
        wanted = {"types": array(list(set(types))), "ignored": array(ignored), "limit": limit, "now": now}
        rows: list[Row] = yield (
            self.statement("reap.ended_or_dead", **wanted, dead=array(dead))
            if dead
            else self.statement("reap.ended", **wanted)
        )
        if not rows:
            return []
        horizons = yield from self.known_horizons({row[1] for row in rows})
        ids = [row[0] for row in rows]
        pauses = [(name, [round(each * 1_000_000) for each in of_type]) for name, of_type in delays.items() if of_type]
        known = {"dead": array(dead), "horizons": array(horizons)}
        return (yield from together(self._put_back(ids, error, now, array(pauses), **known)))

    def _put_back(self, ids: Sequence[str], error: bytes, now: int, delays: str, **who: str) -> Program[list[JobRow]]:
        code, message = told(error)
        claims = yield from self.claims("claims", ids=array(ids))
        yield self.statement("attempts.lost", ids=array(ids), now=now, code=code, message=message, **who)
        yield self.statement("attempts.trim", jobs=array(ids), kept=KEPT)
        jobs = yield from self._by_id("reap.put_back", ids, job_of, now=now, error=error.decode(), delays=delays, **who)
        reaped = [job for job in jobs if job is not None]
        if claims:
            held = [(job, claims[job.id]) for job in reaped]
            yield from self.count(
                claim.taken_back() if job.attempt < claim.attempt else claim.ended("lost", now) for job, claim in held
            )
        return reaped


def _ordinal(job: JobRow, ordinal: int | None) -> int | None:
    return NOT_BEGUN if job.losses >= ALONE_AFTER else ordinal


class _Lane(msgspec.Struct):
    """One type of one queue."""

    queue: int
    priority: int
    type_name: str
    left: int
    leased_until: int


class _Choice:
    """Which jobs a claim takes, each for a lane."""

    def __init__(self, request: ClaimRequest, running: _Running, paused: Sequence[Pause], now: int) -> None:
        cap = request.cluster_cap
        self._request = request
        self.cluster_room = sys.maxsize if cap is None else cap - sum(number for _, _, number in running)
        self._rooms = [_room(queue, running) for queue in request.queues]
        self.lanes = [
            _Lane(number, queue.priority, limit.name, limit.limit, add_seconds(now, limit.lease))
            for number, queue in enumerate(request.queues)
            for limit in queue.types
            if limit.limit > 0 and self._rooms[number] > 0 and not is_paused(paused, limit.name, queue.name)
        ]
        self.taken: dict[int, _Lane] = {}
        self.more = False

    def place_of(self, job: LimitedJob) -> tuple[int, int, int, str] | None:
        """The place of a job with a limit in the order of claims; None if a cap is reached."""
        lane = self._lane_of(job)
        return None if lane is None else (lane.priority, job.priority, job.scheduled_at, job.id)

    def take(self, job: LimitedJob) -> bool:
        lane = self._lane_of(job)
        if lane is not None:
            self._take(job.rowid, lane)
        return lane is not None

    def _lane_of(self, job: LimitedJob) -> _Lane | None:
        free = [lane for lane in self.lanes if lane.type_name == job.type_name and self.room(lane) > 0]
        return min(free, key=lambda lane: lane.priority, default=None)

    def room(self, lane: _Lane) -> int:
        return min(lane.left, self._rooms[lane.queue])

    def choose(self, candidates: Sequence[tuple[int, int, int]], head: int) -> bool:
        """Take the candidates in their order, without those that there is no room for.

        `head` jobs of each lane were read. After the last of them, the next job of the lane is
        unknown. So the choice is final, and the answer True, only if it ends before that.
        """
        limit, final = self._request.limit, True
        seen = [0] * len(self.lanes)
        for rowid, position, _ in candidates:
            lane = self.lanes[position]
            seen[position] += 1
            if self.room(lane) > 0 and rowid not in self.taken:
                if len(self.taken) >= limit:
                    self.more = True
                    return True
                self._take(rowid, lane)
                if len(self.taken) >= self.cluster_room:
                    return True
            if seen[position] == head and self.room(lane) > 0:
                final = False
                if len(self.taken) < limit:
                    return False
        return final

    def _take(self, rowid: int, lane: _Lane) -> None:
        self.taken[rowid] = lane
        lane.left -= 1
        self._rooms[lane.queue] -= 1


def _room(queue: QueueLimit, running: _Running) -> int:
    """How many more jobs of the queue may run. What an older version has claimed names no queue: it
    counts if its type is a member.
    """
    if queue.max_concurrency is None:
        return sys.maxsize
    return queue.max_concurrency - sum(
        number
        for name, type_name, number in running
        if name == queue.name or (name is None and type_name in queue.members)
    )
