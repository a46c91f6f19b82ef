"""Claims: promote what has become due, read the first jobs of each type, choose, take."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

import msgspec

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, job_of, moment
from queuert.adapters.sqlite.operations.workers import Workers
from queuert.model import Claimed, ClaimRequest, ClaimResult, JobRow, Lease, QueueLimit
from queuert.ports.program import Program

PROMOTED_AT_ONCE = 5000
"""Jobs of each type that one claim promotes, in about 15 ms. If more jobs become due at one moment,
they become ready over the next claims, longest due first. Until then priorities apply among the
jobs that are ready."""


class Claiming(Workers):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        if not any(queue.types for queue in request.queues):
            return ClaimResult([], more=False)
        return (yield from together(self._claim(request)))

    def _claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        now = self.now()
        running = yield from self._running(request)
        choice = yield from self._find(request, running, now)
        jobs = (yield from self._take(request, choice.taken, now)) if choice.taken else []
        if choice.more:
            return ClaimResult(jobs, more=True)
        names = {limit.name for queue in request.queues for limit in queue.types}
        due: list[Row] = yield self.statement("claim.next", types=array(list(names)), now=now)
        return ClaimResult(jobs, more=False, next_in=(due[0][0] - now) / 1_000_000 if due else None)

    def _take(self, request: ClaimRequest, taken: Mapping[int, _Lane], now: int) -> Program[list[Claimed]]:
        last: list[Row] = yield self.statement("claim.tokens", number=len(taken), nanoseconds=time.time_ns())
        rows: list[Row] = yield self.statement(
            "claim.take",
            taken=array([(rowid, lane.leased_until) for rowid, lane in taken.items()]),
            now=now,
            worker=request.worker,
            first_token=last[0][0] - len(taken) + 1,
            at_once=request.at_once,
            first_ordinal=request.first_ordinal,
        )
        jobs = sorted(((job_of(row[:-1]), row[-1] is not None) for row in rows), key=lambda each: each[0].token or 0)
        blockers = yield from self.job_blockers([job.id for job, _ in jobs])
        at_once = len(jobs) if request.at_once is None else request.at_once
        return [
            Claimed(
                job,
                job.deadline is not None and job.deadline <= moment(now),
                tuple(its_blockers),
                request.first_ordinal + place if place >= at_once else None,
                ran_before,
            )
            for place, ((job, ran_before), its_blockers) in enumerate(zip(jobs, blockers, strict=True))
        ]

    def _running(self, request: ClaimRequest) -> Program[dict[str, int]]:
        """The number of running jobs by type, if a cap counts them. A cap of 0 needs no count."""
        if not request.cluster_cap and not any(queue.max_concurrency for queue in request.queues):
            return {}
        rows: list[tuple[str, int]] = yield self.statement("claim.running")
        return dict(rows)

    def _find(self, request: ClaimRequest, running: Mapping[str, int], now: int) -> Program[_Choice]:
        """Read the first jobs of each type, and more of them if those do not decide the choice."""
        choice = _Choice(request, running, now)
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
            choice = _Choice(request, running, now)

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

    def reap(
        self, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes, dead: Sequence[str] = ()
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
        jobs = yield from self._by_id(
            "reap.put_back",
            [row[0] for row in rows],
            job_of,
            now=now,
            error=error.decode(),
            dead=array(dead),
            horizons=array(horizons),
        )
        return [job for job in jobs if job is not None]


class _Lane(msgspec.Struct):
    """One type of one queue."""

    queue: int
    priority: int
    type_name: str
    left: int
    leased_until: int


class _Choice:
    """Which jobs a claim takes, each for a lane."""

    def __init__(self, request: ClaimRequest, running: Mapping[str, int], now: int) -> None:
        cap = request.cluster_cap
        self._request = request
        self.cluster_room = sys.maxsize if cap is None else cap - sum(running.values())
        self._rooms = [_room(queue, running) for queue in request.queues]
        self.lanes = [
            _Lane(number, queue.priority, limit.name, limit.limit, add_seconds(now, limit.lease))
            for number, queue in enumerate(request.queues)
            for limit in queue.types
            if limit.limit > 0 and self._rooms[number] > 0
        ]
        self.taken: dict[int, _Lane] = {}
        self.more = False

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
        """A job counts in its own queue, and in every other queue that its type belongs to."""
        self.taken[rowid] = lane
        lane.left -= 1
        for number, queue in enumerate(self._request.queues):
            if number == lane.queue or lane.type_name in queue.members:
                self._rooms[number] -= 1


def _room(queue: QueueLimit, running: Mapping[str, int]) -> int:
    """How many more jobs of the queue may run."""
    if queue.max_concurrency is None:
        return sys.maxsize
    return queue.max_concurrency - sum(running.get(name, 0) for name in set(queue.members))
