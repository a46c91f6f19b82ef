"""Claiming jobs, renewing and holding claims, reaping expired leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from queuert.adapters.postgres.operations.base import BaseOperations
from queuert.adapters.postgres.rows import Row, blocker_of, job_of, json_of, utc
from queuert.adapters.sql.circumstances import pause_rows
from queuert.base.arguments import EARLIEST, LATEST
from queuert.base.times import EPOCH
from queuert.ports.program import Program
from queuert.records.failed_attempts import told
from queuert.records.model import NO_DELAYS, Claimed, ClaimRequest, ClaimResult, JobRow, Lease

_FIRST, _LAST = ((moment - EPOCH).total_seconds() for moment in (EARLIEST, LATEST))
_blockers = msgspec.json.Decoder(list[tuple[str, str, str, str | None, str | None]])
_cursors = msgspec.json.Decoder(dict[str, str | None])
_positions = msgspec.json.Decoder(dict[str, msgspec.Raw])
_PAUSED = 12
"""The column of the first row that has the pauses."""


class Claiming(BaseOperations):
    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        """Jobs with a limit have a statement of their own, which comes first.

        It also returns whether the other one is needed.
        """
        by_key = any(limit.limits for queue in request.queues for limit in queue.types)
        if not by_key or request.slots == 0:
            return (yield from self._claim(request))
        limited, others = yield from self._claim_limited(request)
        if not others:
            return limited
        plain = yield from self._claim(request.after(len(limited.jobs)))
        more = limited.more or plain.more
        moments = [each for each in (limited.next_in, plain.next_in) if each is not None]
        return ClaimResult(
            [*limited.jobs, *plain.jobs], more, None if more else min(moments, default=None), plain.paused
        )

    def _claim_limited(self, request: ClaimRequest) -> Program[tuple[ClaimResult, bool]]:
        """The jobs, and whether there may be others, without a limit."""
        asked = self._asked(request)
        places = [limit for queue in request.queues for limit in queue.types]
        pairs = [(place, name) for place, limit in enumerate(places, 1) for name in limit.limits]
        names = {name for _, name in pairs}
        slots = request.limit if request.slots is None else request.slots
        rows: list[Row] = yield self.statement(
            "limits.take",
            **asked,
            limit=max(0, min(request.limit, slots)),
            beside=max(0, request.limit),
            pair_types=[place for place, _ in pairs],
            pair_names=[name for _, name in pairs],
            cursors=msgspec.json.encode({name: self.cursors.get(name) for name in names}).decode(),
            first_token=request.first_token,
            statistics=self.statistics,
        )
        others, _, cursors, _, more, next_in, claimed_at = rows[0][-7:]
        self.cursors.update(_cursors.decode(cursors))
        since, times = utc(claimed_at), _Times()
        leased = {limit.name: since + timedelta(seconds=limit.lease) for limit in places}
        jobs = [_claimed(row, request.worker, since, leased, times) for row in rows[1:]]
        return ClaimResult(jobs, more, None if more else next_in), others

    def _asked(self, request: ClaimRequest) -> dict[str, Any]:
        """What both statements are told."""
        queues = list(enumerate(request.queues, 1))
        limits = [(number, limit) for number, queue in queues for limit in queue.types]
        members = [(number, name) for number, queue in queues for name in dict.fromkeys(queue.members)]
        return {
            "worker": request.worker,
            "types": [limit.name for _, limit in limits],
            "queues": [number for number, _ in limits],
            "limits": [limit.limit for _, limit in limits],
            "leases": [limit.lease for _, limit in limits],
            "queue_names": [queue.name for queue in request.queues],
            "queue_priorities": [queue.priority for queue in request.queues],
            "queue_caps": [queue.max_concurrency for queue in request.queues],
            "member_queues": [number for number, _ in members],
            "member_types": [name for _, name in members],
            "cluster_cap": request.cluster_cap,
        }

    def _claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        queues = list(enumerate(request.queues, 1))
        limits = [(number, limit) for number, queue in queues for limit in queue.types]
        types = [limit.name for _, limit in limits]
        if not types:
            return ClaimResult([], more=False)
        known = {name: found for name in types if (found := self.positions.get(name)) is not None}
        rows: list[Row] = yield self.statement(
            "claim.take",
            **self._asked(request),
            limit=max(0, request.limit),
            positions=msgspec.json.encode(known).decode() if known else None,
            at_once=request.at_once,
            first_ordinal=request.first_ordinal,
            first_token=request.first_token,
            statistics=self.statistics,
        )
        positions, _, more, next_in, claimed_at = rows[0][-5:]
        self._remember(types, positions)
        since = utc(claimed_at)
        leased = {limit.name: since + timedelta(seconds=limit.lease) for _, limit in limits}
        times = _Times()
        jobs = [_claimed(row, request.worker, since, leased, times) for row in rows[1:]]
        return ClaimResult(jobs, more=more, next_in=next_in, paused=tuple(pause_rows(rows[0][_PAUSED])))

    def _remember(self, names: list[str], positions: str | None) -> None:
        """None after an ordinary claim.

        Only the server reads the positions; it also knows when they expire.
        """
        if positions is not None:
            self.positions.update(_positions.decode(positions))
        elif self.positions:
            for name in names:
                self.positions.pop(name, None)

    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        if not leases:
            return []
        last = {(lease.job_id, lease.token): lease.duration for lease in leases}
        rows: list[Row] = yield self.statement(
            "claim.renew",
            ids=[lease.job_id for lease in leases],
            tokens=[lease.token for lease in leases],
            durations=[last[lease.job_id, lease.token] for lease in leases],
        )
        return [row[0] for row in rows]

    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:
        rows: list[Row] = yield self.statement("claim.hold", id=job_id, token=token, lock=lock)
        return bool(rows)

    def begin_alone(self, job_id: str, token: int) -> Program[bool]:
        rows: list[Row] = yield self.statement("claim.begin_alone", id=job_id, token=token)
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
        code, message = told(error)
        kinds = max(map(len, delays.values()), default=0)
        rows: list[Row] = yield self.statement(
            "claim.reap",
            types=list(types),
            ignored=list(ignored),
            limit=limit,
            error=error.decode(),
            dead=list(dead),
            code=code,
            message=message,
            statistics=self.statistics,
            delays=[_nth(delays.get(name), place) for name in types for place in range(kinds)],
            kinds=kinds,
        )
        return [job_of(row) for row in rows]


def _nth(delays: Sequence[float] | None, place: int) -> float:
    return delays[min(place, len(delays) - 1)] if delays else 0.0


class _Times(dict[float, datetime]):
    """Moments by the seconds since 1970. Jobs that were started together have the same one."""

    def __missing__(self, epoch: float) -> datetime:
        # One that Python does not have must not cost the whole claim, which is committed.
        if not _FIRST <= epoch < _LAST:
            return EARLIEST if epoch < _FIRST else LATEST
        moment = self[epoch] = EPOCH + timedelta(seconds=epoch)
        return moment


def _claimed(row: Row, worker: str, since: datetime, leased: Mapping[str, datetime], times: _Times) -> Claimed:
    """A claimed job, from the columns that differ from job to job."""
    (
        job_id, type_name, chain_id, chain_type, chain_index, input_, priority, created_at, scheduled_at, attempt,
        token, ordinal, last_error, deadline, dedup_key, blockers_left, trace_context, chain_trace_context, expired,
        ran_before, losses, blockers, lane, _, _, _,
    ) = row  # fmt: skip
    job = JobRow(
        job_id, type_name, chain_id or job_id, chain_type, chain_index, input_.encode(), None, "running", priority,
        times[created_at], times[scheduled_at], None, None, None, attempt, since, json_of(last_error), worker,
        leased[type_name], token, deadline and utc(deadline), dedup_key, blockers_left or 0, trace_context,
        chain_trace_context, lane, losses,
    )  # fmt: skip
    its_blockers = tuple(map(blocker_of, _blockers.decode(blockers))) if blockers else ()
    return Claimed(job, expired, its_blockers, ordinal, bool(ran_before))
