"""Storing new jobs: look, decide, write.

The look answers everything that the decision needs: who holds the keys, and what the chains named as blockers are.
The write lock is held before it, so nothing of that can change until the commit. The decision takes the jobs one
after the other, so that each finds those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from queuert.adapters.sqlite.reading import get_chains
from queuert.adapters.sqlite.rows import Row, resolve
from queuert.adapters.sqlite.store import Store, array
from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch, QueuertError
from queuert.model import TERMINAL, BlockerRef, Created, Dedup, NewJob, Status, seconds
from queuert.ports.program import Program

_Key = tuple[str, str]


class _Chain(msgspec.Struct):
    """What has to be known of a chain that is stored already, or comes earlier in the call."""

    id: str
    type_name: str
    status: Status
    created_at: int


class _Plan:
    """What is going to be written, and answered."""

    def __init__(self, store: Store, now: int) -> None:
        self.store = store
        self.now = now
        self.holders: dict[_Key, _Chain] = {}
        self.chains: dict[str, _Chain] = {}
        self.ids: set[str] = set()
        self.rows: list[tuple[Any, ...]] = []
        self.edges: list[tuple[str, int, str, str | None]] = []
        self.keys: dict[_Key, str] = {}
        self.answers: list[Created | str] = []
        """What was stored, or the id of the chain that stood in the way."""


def store_jobs(store: Store, jobs: Sequence[NewJob]) -> Program[list[Created]]:
    """Store jobs. Runs inside a unit: on an error that undoes what was written."""
    plan = _Plan(store, store.now())
    yield from _look(plan, jobs)
    for position, job in enumerate(jobs):
        try:
            _decide(plan, job)
        except QueuertError:
            # The first error in the order of the jobs is reported: an id that is taken would have come before.
            yield from _refuse_taken_ids(plan, jobs[: position + 1])
            raise
    yield from _write(plan)
    return (yield from _answers(plan))


def _look(plan: _Plan, jobs: Sequence[NewJob]) -> Program[None]:
    keys = list(dict.fromkeys((job.chain_type, job.dedup.key) for job in jobs if job.dedup is not None))
    blockers = list(dict.fromkeys(blocker.chain_id for job in jobs for blocker in job.blockers))
    if not keys and not blockers:
        return
    rows: list[Row] = yield plan.store("create_jobs.look", keys=array(keys), blockers=array(blockers))
    for kind, position, *chain in rows:
        if kind == "key":
            plan.holders[keys[position]] = _Chain(*chain)
        else:
            plan.chains[blockers[position]] = _Chain(*chain)


def _decide(plan: _Plan, job: NewJob) -> None:
    dedup = job.dedup
    key = None if dedup is None else (job.chain_type, dedup.key)
    if dedup is not None and key is not None:
        holder = plan.holders.get(key)
        if holder is not None and _matches(dedup, holder, plan.now):
            plan.answers.append(holder.id)
            return
    if job.id in plan.ids:
        raise JobIdExists(job.id)
    left = _wait_for_blockers(plan, job) if job.blockers else 0
    status: Status = "blocked" if left else "pending"
    scheduled_at = resolve(job.schedule, plan.now)
    ready = status == "pending" and scheduled_at <= plan.now
    plan.ids.add(job.id)
    plan.rows.append((
        job.id, job.type_name, job.chain_id, job.chain_type, job.chain_index, status,
        None if left else int(ready), job.priority, scheduled_at,
        None if job.deadline is None else resolve(job.deadline, plan.now),
        None if dedup is None else dedup.key, left, job.trace_context, job.chain_trace_context, job.input.decode(),
    ))  # fmt: skip
    plan.answers.append(Created(job.id, job.chain_id, status, ready))
    if job.chain_index > 0:
        # Whoever comes later in this call and waits for the chain waits for this job of it.
        known = plan.chains.get(job.chain_id)
        if known is not None:
            known.status = status
    else:
        chain = _Chain(job.id, job.type_name, status, plan.now)
        plan.chains[job.id] = chain
        if key is not None:
            plan.holders[key] = chain
            plan.keys[key] = job.id


def _matches(dedup: Dedup, holder: _Chain, now: int) -> bool:
    if holder.id in dedup.exclude:
        return False
    if dedup.scope == "incomplete":
        return holder.status not in TERMINAL
    if dedup.window is None:
        return True
    return now - holder.created_at < round(seconds(dedup.window, "window") * 1_000_000)


def _wait_for_blockers(plan: _Plan, job: NewJob) -> int:
    """Note the edges of a job; how many of them are still in its way."""
    edges: dict[str, BlockerRef] = {}
    left = 0
    for blocker in job.blockers:
        chain = None if blocker.chain_id == job.chain_id else plan.chains.get(blocker.chain_id)
        if chain is None:
            raise BlockerNotFound(job.id, blocker.chain_id)
        if chain.type_name != blocker.chain_type:
            raise JobTypeMismatch(blocker.chain_id, blocker.chain_type, chain.type_name)
        if blocker.chain_id not in edges:
            edges[blocker.chain_id] = blocker
            left += chain.status != "completed"
    for position, edge in enumerate(edges.values()):
        plan.edges.append((job.id, position, edge.chain_id, edge.trace_context))
    return left


def _write(plan: _Plan) -> Program[None]:
    """Nothing at all, if every job was deduplicated."""
    if not plan.rows:
        return
    stored: list[Row] = yield plan.store("create_jobs.insert", jobs=array(plan.rows), now=plan.now)
    if len(stored) != len(plan.rows):
        new = {row[0] for row in stored}
        raise JobIdExists(next(row[0] for row in plan.rows if row[0] not in new))
    if plan.edges:
        yield plan.store("create_jobs.wait_for", edges=array(plan.edges))
    if plan.keys:
        held = [(chain_type, key, chain_id) for (chain_type, key), chain_id in plan.keys.items()]
        yield plan.store("create_jobs.hold_keys", keys=array(held))


def _answers(plan: _Plan) -> Program[list[Created]]:
    existing = [answer for answer in plan.answers if isinstance(answer, str)]
    if not existing:
        return [answer for answer in plan.answers if isinstance(answer, Created)]
    found = yield from get_chains(plan.store, existing)
    chains = {chain.first.id: chain for chain in found if chain is not None}
    return [
        Created(answer, answer, chains[answer].current.status, ready=False, existing=chains[answer])
        if isinstance(answer, str)
        else answer
        for answer in plan.answers
    ]


def _refuse_taken_ids(plan: _Plan, jobs: Sequence[NewJob]) -> Program[None]:
    answers: list[Created | str | None] = [*plan.answers, None]
    ids = [job.id for job, answer in zip(jobs, answers, strict=True) if not isinstance(answer, str)]
    rows: list[Row] = yield plan.store("read.jobs", ids=array(ids))
    taken = {row[0] for row in rows}
    for job_id in ids:
        if job_id in taken:
            raise JobIdExists(job_id)
