"""How jobs end, are continued or are put back, and how the end of a chain frees its dependents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.counting import Claim
from queuert.adapters.sqlite.operations.creating import Creating
from queuert.adapters.sqlite.operations.deleting import Deleting
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, job_of, resolve, resolve_due
from queuert.errors import InvalidArgument
from queuert.ports.program import Program
from queuert.records.failed_attempts import KEPT, Outcome, told
from queuert.records.history import Happened, settled_as
from queuert.records.model import UNBLOCKED_AT_ONCE, Freed, JobRow, Settled, Settlement, Unblocked, When


class Settling(Creating, Deleting):
    unblocked_at_once = UNBLOCKED_AT_ONCE

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        if not settlements:
            return Settled([], [], [])
        for settlement in settlements:
            if settlement.status == "pending" and settlement.token is None:
                raise InvalidArgument(f"job {settlement.job_id} can only be put back with the token of its claim")
        return (yield from together(self.settle_all(settlements)))

    def trigger(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return self._by_id("change.trigger", job_ids, job_of, now=self.now())

    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return together(self._retry(job_ids)) if job_ids else self._by_id("change.retry", job_ids, job_of)

    def _retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        now = self.now()
        jobs = yield from self._by_id("change.retry", job_ids, job_of, now=now)
        if self.statistics:
            retried = {job.id: job.type_name for job in jobs if job is not None}
            yield from self.count((name, now, "retried", None, 1) for name in retried.values())
        return jobs

    def set_priority(self, job_ids: Sequence[str], priority: int) -> Program[list[JobRow | None]]:
        return self._by_id("change.set_priority", job_ids, job_of, priority=priority)

    def repair(
        self, job_id: str, input: bytes, deadline: When | None, lane: str | None, weight: float | None
    ) -> Program[JobRow | None]:
        return together(self._repair_job(job_id, input, deadline, lane, weight))

    def _repair_job(
        self, job_id: str, input: bytes, deadline: When | None, lane: str | None, weight: float | None
    ) -> Program[JobRow | None]:
        now = self.now()
        rows: list[Row] = yield self.statement(
            "change.repair",
            id=job_id,
            input=input.decode(),
            now=now,
            deadline=None if deadline is None else resolve(deadline, now),
            lane=lane,
            weight=weight,
        )
        if not rows:
            return None
        job = job_of(rows[0])
        if self.statistics:
            yield from self.count([(job.type_name, now, "retried", None, 1)])
        return job

    def settle_all(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        """As part of one command, in three steps, each for the whole batch: end the jobs, free
        dependents, store continuations.

        So a continuation does not wait for a chain that completes in the same batch.
        """
        now = self.now()
        applied = [False] * len(settlements)
        completed = _Completed()
        discarded: list[str] = []
        for batch in _batches(settlements):
            failed = [settlements[position] for position in batch if settlements[position].fails_attempt]
            if failed:
                yield from self.note_attempts(
                    [(each.job_id, each.token, *told(each.error or b"")) for each in failed], "failed", now
                )
            closed = [settlements[position] for position in batch if settlements[position].closes is not None]
            if closed:
                until = [(each.job_id, add_seconds(now, each.closes or 0), each.token) for each in closed]
                yield self.statement("limits.close", closed=array(until))
            items = array([_item(settlements[position], now) for position in batch])
            claims = yield from self._claims_to_read([settlements[position] for position in batch])
            rows: list[_Applied] = yield self.statement("settle.apply", items=items, now=now)
            chains = {job_id: (chain_id, edges) for job_id, chain_id, edges, _, _ in rows}
            if self.statistics:
                by_id = {settlements[position].job_id: settlements[position] for position in batch}
                yield from self.count(_happened(by_id[row[0]], row, claims.get(row[0]), now) for row in rows)
            for position in batch:
                settlement = settlements[position]
                chain = chains.get(settlement.job_id)
                if chain is not None:
                    applied[position] = True
                    if settlement.status == "completed" and settlement.continuation is None:
                        completed.add(*chain, by_hand=settlement.token is None)
                        if settlement.discard:
                            discarded.append(chain[0])
        freed = yield from self._unblock(completed, now)
        continuations = [each.continuation if ok else None for each, ok in zip(settlements, applied, strict=True)]
        stored = iter((yield from self._create([job for job in continuations if job is not None])))
        created = [None if job is None else next(stored) for job in continuations]
        if discarded:
            left: list[tuple[str]] = yield self.statement("settle.not_asked_for", chains=array(discarded))
            yield from self.delete_jobs(array([chain_id for (chain_id,) in left]))
        return Settled(applied, created, freed.unblocked, freed.more)

    def _claims_to_read(self, settlements: Sequence[Settlement]) -> Program[dict[str, Claim]]:
        """Those of which the changed row does not tell enough."""
        unusual = [each.job_id for each in settlements if each.token is None or each.give_back]
        return (yield from self.claims("claims", ids=array(unusual))) if unusual else {}

    def note_attempts(
        self, ended: Sequence[tuple[str, int | None, str | None, str | None]], outcome: Outcome, now: int
    ) -> Program[None]:
        """Attempts of running jobs, as part of one command, before the jobs are changed: job,
        token (None: any), code and message.
        """
        yield self.statement("attempts.note", ended=array(ended), outcome=outcome, now=now)
        yield self.statement("attempts.trim", jobs=array([job_id for job_id, *_ in ended]), kept=KEPT)

    def _unblock(self, completed: _Completed, now: int) -> Program[Freed]:
        chains = [*completed.chains, *completed.by_hand]
        if not chains:
            return Freed([])
        if completed.edges <= self.unblocked_at_once:
            return Freed(_unblocked((yield self.statement("settle.unblock", chains=array(chains), now=now))))
        # Too many for one transaction: count down the first ones, and remember the others.
        edges: Counter[str] = Counter()
        left, more = self.unblocked_at_once, False
        for chain_id in completed.by_hand:
            edges.update((yield from self._edges(chain_id, "", -1)))
        for chain_id in sorted(completed.chains):
            jobs = yield from self._edges(chain_id, "", left + 1)
            edges.update(jobs[:left])
            if len(jobs) > left:
                more = True
                yield self.statement("unblocking.put", chain=chain_id, next=jobs[left])
            left -= min(left, len(jobs))
        rows = yield self.statement("unblocking.count_down", jobs=array(list(edges.items())), now=now)
        return Freed(_unblocked(rows), more)

    def continue_unblocking(self, limit: int) -> Program[Freed]:
        if limit <= 0:
            return Freed([])
        return (yield from together(self._continue_unblocking(limit)))

    def _continue_unblocking(self, limit: int) -> Program[Freed]:
        items: list[tuple[str, str]] = yield self.statement("unblocking.item")
        if not items:
            return Freed([])
        ((chain_id, first),) = items
        jobs = yield from self._edges(chain_id, first, limit + 1)
        if len(jobs) > limit:
            yield self.statement("unblocking.put", chain=chain_id, next=jobs[limit])
        else:
            yield self.statement("unblocking.delete", chain=chain_id)
        rows = yield self.statement("unblocking.count_again", jobs=array(jobs[:limit]), now=self.now())
        ((more,),) = yield self.statement("unblocking.more")
        return Freed(_unblocked(rows), bool(more), chain_id)

    def _edges(self, chain_id: str, first: str, number: int) -> Program[list[str]]:
        """The jobs that wait for a chain, by id; with -1, all of them."""
        rows: list[tuple[str]] = yield self.statement("unblocking.edges", chain=chain_id, first=first, number=number)
        return [job_id for (job_id,) in rows]


class _Completed:
    """The chains that a settlement completes, and that jobs wait for."""

    def __init__(self) -> None:
        self.chains: list[str] = []
        self.by_hand: list[str] = []
        self.edges = 0
        """Of `chains`."""

    def add(self, chain_id: str, edges: int, *, by_hand: bool) -> None:
        if edges and by_hand:
            self.by_hand.append(chain_id)
        elif edges:
            self.chains.append(chain_id)
            self.edges += edges


_Applied = tuple[str, str, int, str, int | None]
"""Job, chain, edges, type, and when its last attempt began."""


def _happened(settlement: Settlement, row: _Applied, claim: Claim | None, now: int) -> Happened:
    what = settled_as(settlement.status)
    if claim is not None:
        return claim.taken_back() if settlement.give_back else claim.ended(what, now)
    began = None if settlement.token is None else row[4]
    return row[3], now, what, None if began is None else (now - began) / 1_000_000, 1


def _unblocked(rows: Sequence[tuple[str, str, int | None]]) -> list[Unblocked]:
    # For a job that waits for other chains too, the last column is null.
    return [Unblocked(job_id, name, bool(ready)) for job_id, name, ready in sorted(rows) if ready is not None]


def _batches(settlements: Sequence[Settlement]) -> list[list[int]]:
    """Positions in batches that have no job twice: a later settlement must see the earlier one.

    Usually this is one batch.
    """
    batches: list[list[int]] = []
    seen: dict[str, int] = {}
    for position, settlement in enumerate(settlements):
        number = seen[settlement.job_id] = seen.get(settlement.job_id, -1) + 1
        if number == len(batches):
            batches.append([])
        batches[number].append(position)
    return batches


def _item(settlement: Settlement, now: int) -> tuple[Any, ...]:
    """The parameters of `settle.apply` for one job, without what is null at the end: SQLite parses
    each of them.
    """
    job_id, token, status = settlement.job_id, settlement.token, settlement.status
    if status == "completed":
        continuation, output = settlement.continuation, settlement.output
        ended = (job_id, token, status, settlement.worker, None if output is None else output.decode())
        return ended if continuation is None else (*ended, continuation.id)
    error = None if settlement.error is None else settlement.error.decode()
    if status != "pending":
        return job_id, token, status, settlement.worker, None, None, error
    if settlement.give_back:
        return job_id, token, status, None, None, None, None, None, 1, 1
    due = resolve_due(settlement.schedule, now)
    return job_id, token, status, None, None, None, error, due, int(settlement.uncounted)
