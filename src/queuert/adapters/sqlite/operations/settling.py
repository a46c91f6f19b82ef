"""How jobs end, are continued or are put back, and how the end of a chain frees its dependents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.creating import Creating
from queuert.adapters.sqlite.operations.rows import job_of, resolve
from queuert.errors import InvalidArgument
from queuert.model import UNBLOCKED_AT_ONCE, Freed, JobRow, Settled, Settlement, Unblocked
from queuert.ports.program import Program


class Settling(Creating):
    unblocked_at_once = UNBLOCKED_AT_ONCE

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        if not settlements:
            return Settled([], [], [])
        for settlement in settlements:
            if settlement.status == "pending" and settlement.token is None:
                raise InvalidArgument(f"job {settlement.job_id} can only be put back with the token of its claim")
        return (yield from together(self._settle(settlements)))

    def trigger(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return self._by_id("change.trigger", job_ids, job_of, now=self.now())

    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        return self._by_id("change.retry", job_ids, job_of, now=self.now())

    def _settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        """In three steps, each for the whole batch: end the jobs, free dependents, store
        continuations.

        So a continuation does not wait for a chain that completes in the same batch.
        """
        now = self.now()
        applied = [False] * len(settlements)
        completed = _Completed()
        for batch in _batches(settlements):
            items = array([_item(settlements[position], now) for position in batch])
            rows: list[tuple[str, str, int]] = yield self.statement("settle.apply", items=items, now=now)
            chains = {job_id: (chain_id, edges) for job_id, chain_id, edges in rows}
            for position in batch:
                settlement = settlements[position]
                chain = chains.get(settlement.job_id)
                if chain is not None:
                    applied[position] = True
                    if settlement.status == "completed" and settlement.continuation is None:
                        completed.add(*chain, by_hand=settlement.token is None)
        freed = yield from self._unblock(completed, now)
        continuations = [each.continuation if ok else None for each, ok in zip(settlements, applied, strict=True)]
        stored = iter((yield from self._create([job for job in continuations if job is not None])))
        created = [None if job is None else next(stored) for job in continuations]
        return Settled(applied, created, freed.unblocked, freed.more)

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
    """The parameters of `settle.apply` for one job."""
    job_id, token, status = settlement.job_id, settlement.token, settlement.status
    if status == "completed":
        continuation, output = settlement.continuation, settlement.output
        return (
            job_id, token, status, None, 0, 0, settlement.worker,
            None if continuation is None else continuation.id, None if output is None else output.decode(), None,
        )  # fmt: skip
    error = None if settlement.error is None else settlement.error.decode()
    if status != "pending":
        return job_id, token, status, None, 0, 0, settlement.worker, None, None, error
    if settlement.give_back:
        return job_id, token, status, None, 1, 1, None, None, None, None
    return (
        job_id,
        token,
        status,
        resolve(settlement.schedule, now),
        int(settlement.uncounted),
        0,
        None,
        None,
        None,
        error,
    )
