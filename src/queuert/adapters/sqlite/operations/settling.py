"""How jobs end, are continued or are put back, and how the end of a chain frees its dependents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.creating import Creating
from queuert.adapters.sqlite.operations.rows import job_of, resolve
from queuert.errors import InvalidArgument
from queuert.model import JobRow, Settled, Settlement, Unblocked
from queuert.ports.program import Program


class Settling(Creating):
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
        completed: list[str] = []
        for batch in _batches(settlements):
            items = array([_item(settlements[position], now) for position in batch])
            rows: list[tuple[str, str]] = yield self.statement("settle.apply", items=items, now=now)
            chains = dict(rows)
            for position in batch:
                settlement = settlements[position]
                chain_id = chains.get(settlement.job_id)
                if chain_id is not None:
                    applied[position] = True
                    if settlement.status == "completed" and settlement.continuation is None:
                        completed.append(chain_id)
        unblocked = (yield from self._unblock(completed, now)) if completed else []
        continuations = [each.continuation if ok else None for each, ok in zip(settlements, applied, strict=True)]
        stored = iter((yield from self._create([job for job in continuations if job is not None])))
        return Settled(applied, [None if job is None else next(stored) for job in continuations], unblocked)

    def _unblock(self, chains: Sequence[str], now: int) -> Program[list[Unblocked]]:
        rows: list[tuple[str, str, int | None]] = yield self.statement("settle.unblock", chains=array(chains), now=now)
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
