"""Ending jobs, and changing them from outside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from queuert.adapters.postgres.command import SEPARATOR, PgStatement
from queuert.adapters.postgres.operations.base import BaseOperations, distinct
from queuert.adapters.postgres.operations.creating import columns_of, edges_of
from queuert.adapters.postgres.rows import Row, chain_of, job_of, raise_problem
from queuert.base.ids import is_uuid
from queuert.errors import InvalidArgument
from queuert.ports.program import Program, atomically
from queuert.records.failed_attempts import told
from queuert.records.model import (
    NOW,
    UNBLOCKED_AT_ONCE,
    Cancelled,
    Created,
    Deleted,
    Freed,
    JobRow,
    NewJob,
    Settled,
    Settlement,
    Unblocked,
    When,
)

LONGEST_SPELLED_OUT = 100_000
"""Characters of an output or input that can be a part of the statement's text."""

_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


class Settling(BaseOperations):
    unblocked_at_once = UNBLOCKED_AT_ONCE

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        if not settlements:
            return Settled([], [], [])
        if any(item.status == "pending" and item.token is None for item in settlements):
            raise InvalidArgument("only a claimed job can be put back: settle it with its token")
        if len({item.job_id for item in settlements}) != len(settlements):
            return (yield from atomically(self._settle_in_turn(settlements)))
        worker = settlements[0].worker
        if all(item.worker == worker and _is_plain(item) for item in settlements):
            settled = yield from self._complete(settlements)
            if settled is not None:
                return settled
        return (yield from self._settle(settlements))

    def _complete(self, settlements: Sequence[Settlement]) -> Program[Settled | None]:
        """Returns None if nothing was written.

        Then the general function reports the problem, if there is one.
        """
        order = sorted(range(len(settlements)), key=lambda place: settlements[place].job_id)
        items = [settlements[place] for place in order]
        following = _next_jobs([item.continuation for item in items])
        if following is None:
            return None
        rows: list[Row] = yield self.statement(
            "settle.complete",
            ids=",".join([item.job_id for item in items]),
            tokens=",".join([str(item.token) for item in items]),
            texts=SEPARATOR.join([_text(item).decode() for item in items]),
            worker=settlements[0].worker,
            **following,
            most=self.unblocked_at_once,
            discard=_discarding(items),
            statistics=self.statistics,
        )
        applied = [True] * len(settlements)
        unblocked: list[Unblocked] = []
        more = False
        for kind, place, job_id, type_name, ready in rows:
            if kind == "lost":
                applied[order[place - 1]] = False
            elif kind == "exists":
                return None
            elif kind == "more":
                more = True
            else:
                unblocked.append(Unblocked(job_id, type_name, ready))
        created = [
            Created(job.id, job.chain_id, "pending", ready=True)
            if (job := item.continuation) is not None and applied[place]
            else None
            for place, item in enumerate(settlements)
        ]
        return Settled(applied, created, unblocked, more)

    def _settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        following = [
            (place, item.continuation) for place, item in enumerate(settlements, 1) if item.continuation is not None
        ]
        jobs = [job for _, job in following]
        errors = [(None, None) if item.error is None else told(item.error) for item in settlements]
        rows: list[Row] = yield self.statement(
            "settle.settle",
            ids=[item.job_id for item in settlements],
            tokens=[item.token for item in settlements],
            statuses=[item.status for item in settlements],
            outputs=[None if item.output is None else item.output.decode() for item in settlements],
            errors=[None if item.error is None else item.error.decode() for item in settlements],
            at=[item.schedule.at for item in settlements],
            after=[item.schedule.after for item in settlements],
            uncounted=[item.uncounted for item in settlements],
            give_back=[item.give_back for item in settlements],
            workers=[item.worker for item in settlements],
            next_positions=[place for place, _ in following],
            next_types=[job.type_name for job in jobs],
            **columns_of(jobs, "next_"),
            **edges_of(jobs, {job.chain_id: place for place, job in enumerate(jobs, 1)}, earlier=False),
            most=self.unblocked_at_once,
            discard=[item.discard and item.continuation is None for item in settlements],
            codes=[code for code, _ in errors],
            messages=[message for _, message in errors],
            statistics=self.statistics,
            closes=[item.closes for item in settlements],
        )
        applied = [False] * len(settlements)
        created: list[Created | None] = [None] * len(settlements)
        unblocked: list[Unblocked] = []
        more = False
        for kind, place, job_id, type_name, _, ready, problem in rows:
            if kind == "problem":
                raise_problem(problem)
            if kind == "held":
                applied[place - 1] = True
            elif kind == "unblocked":
                unblocked.append(Unblocked(job_id, type_name, ready))
            elif kind == "more":
                more = True
        places = {job.id: (place, job.chain_id) for place, job in following if applied[place - 1]}
        for kind, _, job_id, _, status, ready, _ in rows:
            if kind == "created":
                place, chain_id = places[job_id]
                created[place - 1] = Created(job_id, chain_id, status, ready)
        return Settled(applied, created, unblocked, more)

    def settle_last(self, settlement: Settlement) -> PgStatement | None:
        if not _is_plain(settlement):
            return None
        job = settlement.continuation
        text = _text(settlement).decode()
        if len(text) > LONGEST_SPELLED_OUT or (job is not None and not _UUID.fullmatch(job.id)):
            return None
        if job is None and not settlement.discard:
            return self.statement(
                "settle.complete_one",
                id=settlement.job_id,
                token=settlement.token,
                output=text,
                worker=settlement.worker,
                statistics=self.statistics,
            )
        return self.statement(
            "settle.complete_last",
            id=settlement.job_id,
            token=settlement.token,
            text=text,
            worker=settlement.worker,
            next_id=job and job.id,
            next_type=job and job.type_name,
            next_priority=job and job.priority,
            next_trace=job and job.trace_context,
            next_chain_trace=job and job.chain_trace_context,
            discard=settlement.discard and job is None,
            statistics=self.statistics,
            next_lane=job and job.lane,
        )

    def _settle_in_turn(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        """A statement applies only the first of several settlements of one job.

        The others follow in further statements.
        """
        applied = [False] * len(settlements)
        created: list[Created | None] = [None] * len(settlements)
        unblocked: list[Unblocked] = []
        more = False
        rest: list[int] = list(range(len(settlements)))
        while rest:
            turn = sorted({settlements[place].job_id: place for place in reversed(rest)}.values())
            settled = yield from self._settle([settlements[place] for place in turn])
            for place, is_applied, made in zip(turn, settled.applied, settled.created, strict=True):
                applied[place], created[place] = is_applied, made
            unblocked += settled.unblocked
            more |= settled.more
            rest = [place for place in rest if place not in turn]
        return Settled(applied, created, unblocked, more)

    def continue_unblocking(self, limit: int) -> Program[Freed]:
        if limit <= 0:
            return Freed([])
        rows: list[Row] = yield self.statement("settle.unblock_more", limit=limit)
        if not rows:
            return Freed([])
        *jobs, (chain_id, _, _, more) = rows
        return Freed([Unblocked(job_id, type_name, ready) for job_id, type_name, ready, _ in jobs], more, chain_id)

    def trigger(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return self.jobs_by_id("change.trigger", job_ids)

    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return self.jobs_by_id("change.retry", job_ids, statistics=self.statistics)

    def set_priority(self, job_ids: Sequence[str], priority: int) -> Program[list[JobRow | None]]:
        return self.jobs_by_id("change.set_priority", job_ids, priority=priority)

    def cancel_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Cancelled]:
        asked = list(dict.fromkeys(ids))
        if not asked:
            return Cancelled([])
        known = distinct(asked)
        if len(known) < len(asked):
            return Cancelled([], missing=tuple(chain_id for chain_id in asked if chain_id not in known))
        rows: list[Row] = yield self.statement("change.cancel", ids=asked, cascade=cascade, statistics=self.statistics)
        missing = {row[1] for row in rows if row[0] == "missing"}
        if missing:
            return Cancelled([], missing=tuple(chain_id for chain_id in asked if chain_id in missing))
        chains = {row[2]: chain_of(row[2:]) for row in rows}
        running = frozenset(chains[row[2]].current.id for row in rows if row[0] == "running")
        named = [chains.pop(chain_id) for chain_id in asked if chain_id in chains]
        return Cancelled([*named, *(chains[chain_id] for chain_id in sorted(chains))], running)

    def repair(
        self, job_id: str, input: bytes, deadline: When | None, lane: str | None, weight: float | None
    ) -> Program[JobRow | None]:
        if not is_uuid(job_id):
            return None
        # Seconds from now, where the deadline is no fixed time.
        after = None if deadline is None or deadline.at is not None else deadline.after or 0.0
        rows: list[Row] = yield self.statement(
            "change.repair",
            id=job_id,
            input=input.decode(),
            deadline_at=None if deadline is None else deadline.at,
            deadline_after=after,
            lane=lane,
            weight=weight,
            statistics=self.statistics,
        )
        return job_of(rows[0]) if rows else None

    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        asked = distinct(ids)
        if not asked:
            return Deleted([], {})
        rows: list[Row] = yield self.statement("change.delete", ids=asked, cascade=cascade, statistics=self.statistics)
        waiting: dict[str, list[str]] = {}
        for row in rows:
            if row[0] == "waiting":
                waiting.setdefault(row[1], []).append(row[2])
        if waiting:
            return Deleted([], waiting)
        chains = {row[3]: chain_of(row[3:]) for row in rows}
        named = [chains.pop(chain_id) for chain_id in asked if chain_id in chains]
        return Deleted([*named, *(chains[chain_id] for chain_id in sorted(chains))], {})


def _is_plain(item: Settlement) -> bool:
    """Whether a claim has ended with an output, or with a next job that is due now and has no
    blockers.
    """
    if item.status != "completed" or item.token is None or item.error is not None:
        return False
    job = item.continuation
    if job is None:
        return item.output is not None
    return (
        item.output is None
        and job.schedule is NOW
        and job.deadline is None
        and not job.blockers
        and job.dedup is None
        and job.weight is None
    )


def _discarding(items: Sequence[Settlement]) -> str | None:
    """Which of them delete their chains; None if none does."""
    wanted = [item.discard and item.continuation is None for item in items]
    return ",".join(["t" if each else "f" for each in wanted]) if True in wanted else None


def _text(item: Settlement) -> bytes:
    return (item.output or b"") if item.continuation is None else item.continuation.input


def _next_jobs(jobs: Sequence[NewJob | None]) -> dict[str, Any] | None:
    """The continuations as parameters, aligned with the jobs before them; None if they cannot be
    written that way.
    """
    following = [job for job in jobs if job is not None]
    if not following:
        jobs = following
    if any(SEPARATOR in job.type_name for job in following) or len({job.id for job in following}) < len(following):
        return None
    if not all(map(_UUID.fullmatch, [job.id for job in following])):
        return None  # from the user's own generator: another spelling of ids
    traced = any(job.trace_context is not None or job.chain_trace_context is not None for job in following)
    return {
        "next_ids": ",".join(["" if job is None else job.id for job in jobs]),
        "next_types": SEPARATOR.join(["" if job is None else job.type_name for job in jobs]),
        "next_priorities": ",".join(["0" if job is None else str(job.priority) for job in jobs]),
        # No driver sends many of these cheaply, and few installations have them.
        "next_traces": [job and job.trace_context for job in jobs] if traced else [],
        "next_chain_traces": [job and job.chain_trace_context for job in jobs] if traced else [],
        "next_lanes": [job and job.lane for job in jobs] if any(job.lane is not None for job in following) else [],
    }
