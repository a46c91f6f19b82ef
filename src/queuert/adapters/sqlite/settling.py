"""How jobs end, go on, or come back, and how the end of a chain frees those that wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from queuert.adapters.sqlite.creating import store_jobs
from queuert.adapters.sqlite.rows import Row, job_of, resolve
from queuert.adapters.sqlite.store import Store, array
from queuert.adapters.sqlite.unit import as_unit
from queuert.errors import InvalidArgument
from queuert.model import Created, JobRow, NewJob, Settled, Settlement, Unblocked
from queuert.ports.program import Program


def settle(store: Store, settlements: Sequence[Settlement]) -> Program[Settled]:
    if not settlements:
        return Settled([], [], [])
    for settlement in settlements:
        if settlement.status == "pending" and settlement.token is None:
            raise InvalidArgument(f"job {settlement.job_id} can only be put back with the token of its claim")
    return (yield from as_unit(_settle(store, settlements)))


def _settle(store: Store, settlements: Sequence[Settlement]) -> Program[Settled]:
    """In three steps, each for the whole batch: end the jobs, free dependents, store continuations.

    So a continuation finds the chains that ended in the same batch completed, and is not counted down for them.
    """
    now = store.now()
    held = [False] * len(settlements)
    completed: list[str] = []
    for batch in _batches(settlements):
        items = array([_item(settlements[position], now) for position in batch])
        rows: list[tuple[str, str]] = yield store("settle.apply", items=items, now=now)
        chains = dict(rows)
        for position in batch:
            settlement = settlements[position]
            chain_id = chains.get(settlement.job_id)
            if chain_id is not None:
                held[position] = True
                if settlement.status == "completed" and settlement.continuation is None:
                    completed.append(chain_id)
    unblocked = (yield from _unblock(store, completed, now)) if completed else []
    created = yield from _continue(store, settlements, held)
    return Settled(held, created, unblocked)


def _batches(settlements: Sequence[Settlement]) -> list[list[int]]:
    """Positions, so that no job is twice in a batch: what comes later must find what came before. Usually one batch."""
    batches: list[list[int]] = []
    seen: dict[str, int] = {}
    for position, settlement in enumerate(settlements):
        number = seen[settlement.job_id] = seen.get(settlement.job_id, -1) + 1
        if number == len(batches):
            batches.append([])
        batches[number].append(position)
    return batches


def _item(settlement: Settlement, now: int) -> tuple[Any, ...]:
    """What `settle.apply` takes for one job."""
    job_id, token, status = settlement.job_id, settlement.token, settlement.status
    if status == "completed":
        continuation, output = settlement.continuation, settlement.output
        return (
            job_id, token, status, None, 0, settlement.worker,
            None if continuation is None else continuation.id, None if output is None else output.decode(), None,
        )  # fmt: skip
    error = None if settlement.error is None else settlement.error.decode()
    if status != "pending":
        return job_id, token, status, None, 0, settlement.worker, None, None, error
    if settlement.give_back:
        return job_id, token, status, None, 1, None, None, None, None
    return job_id, token, status, resolve(settlement.schedule, now), 0, None, None, None, error


def _unblock(store: Store, chains: Sequence[str], now: int) -> Program[list[Unblocked]]:
    rows: list[tuple[str, str, int | None]] = yield store("settle.unblock", chains=array(chains), now=now)
    # A job that still waits for others comes back too, with no readiness.
    return [Unblocked(job_id, name, bool(ready)) for job_id, name, ready in sorted(rows) if ready is not None]


def _continue(store: Store, settlements: Sequence[Settlement], held: Sequence[bool]) -> Program[list[Created | None]]:
    created: list[Created | None] = [None] * len(settlements)
    continuations: dict[int, NewJob] = {
        position: settlement.continuation
        for position, settlement in enumerate(settlements)
        if settlement.continuation is not None and held[position]
    }
    if continuations:
        stored = yield from store_jobs(store, list(continuations.values()))
        for position, each in zip(continuations, stored, strict=True):
            created[position] = each
    return created


def change(store: Store, name: str, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
    """Trigger or retry jobs."""
    if not job_ids:
        return []
    rows: list[Row] = yield store(name, ids=array(job_ids), now=store.now())
    found = {row[0]: job_of(row) for row in rows}
    return [found.get(job_id) for job_id in job_ids]
