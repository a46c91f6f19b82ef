"""Storing new jobs: look, decide, write.

The first statement reads all that the decision needs: the chains that have the keys, and the chains
that are named as blockers. The write lock is held before it, so nothing of that changes until the
commit. The decision takes one job after the other, so that each finds the jobs before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from queuert.adapters.sqlite.connections.commands import together
from queuert.adapters.sqlite.operations.base import array
from queuert.adapters.sqlite.operations.reading import Reading
from queuert.adapters.sqlite.operations.rows import Row, resolve
from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch, QueuertError
from queuert.model import BlockerRef, Created, NewJob, Status
from queuert.ports.program import Program

_Key = tuple[str, str]


class Creating(Reading):
    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        if not jobs:
            return []
        return (yield from together(self._create(jobs)))

    def _create(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        """As part of one command: an error undoes what was written."""
        plan = _Plan(self.now())
        yield from self._look(plan, jobs)
        for position, job in enumerate(jobs):
            try:
                plan.add(job)
            except QueuertError:
                # The error of the first invalid job is raised. A job before this one may have an id
                # that is taken.
                yield from self._refuse_taken_ids(plan, jobs[: position + 1])
                raise
        yield from self._write(plan)
        found = yield from self.get_chains([answer for answer in plan.answers if isinstance(answer, str)])
        chains = {chain.first.id: chain for chain in found if chain is not None}
        return [
            Created(answer, answer, chains[answer].current.status, ready=False, existing=chains[answer])
            if isinstance(answer, str)
            else answer
            for answer in plan.answers
        ]

    def _look(self, plan: _Plan, jobs: Sequence[NewJob]) -> Program[None]:
        keys = list(dict.fromkeys((job.chain_type, job.dedup.key) for job in jobs if job.dedup is not None))
        blockers = list(dict.fromkeys(blocker.chain_id for job in jobs for blocker in job.blockers))
        if not keys and not blockers:
            return
        rows: list[Row] = yield self.statement("create_jobs.look", keys=array(keys), blockers=array(blockers))
        for kind, position, *chain in rows:
            if kind == "key":
                plan.key_chains[keys[position]] = _Chain(*chain)
            else:
                plan.chains[blockers[position]] = _Chain(*chain)

    def _write(self, plan: _Plan) -> Program[None]:
        """Writes nothing if every job was deduplicated."""
        if not plan.rows:
            return
        stored: list[Row] = yield self.statement("create_jobs.insert", jobs=array(plan.rows), now=plan.now)
        if len(stored) != len(plan.rows):
            new = {row[0] for row in stored}
            raise JobIdExists(next(row[0] for row in plan.rows if row[0] not in new))
        if plan.edges:
            yield self.statement("create_jobs.wait_for", edges=array(plan.edges))
        if plan.keys:
            keys = [(chain_type, key, chain_id) for (chain_type, key), chain_id in plan.keys.items()]
            yield self.statement("create_jobs.hold_keys", keys=array(keys))

    def _refuse_taken_ids(self, plan: _Plan, jobs: Sequence[NewJob]) -> Program[None]:
        """The last of the jobs has no answer yet."""
        ids = [job.id for job, answer in zip(jobs, [*plan.answers, None], strict=True) if not isinstance(answer, str)]
        for job_id, row in zip(ids, (yield from self.get_jobs(ids)), strict=True):
            if row is not None:
                raise JobIdExists(job_id)


class _Chain(msgspec.Struct):
    """What must be known about a chain that is stored, or comes earlier in the call."""

    id: str
    type_name: str
    status: Status
    created_at: int


class _Plan:
    """What will be written and answered."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.key_chains: dict[_Key, _Chain] = {}
        self.chains: dict[str, _Chain] = {}
        self.ids: set[str] = set()
        self.rows: list[tuple[Any, ...]] = []
        self.edges: list[tuple[str, int, str, str | None, int]] = []
        self.keys: dict[_Key, str] = {}
        self.answers: list[Created | str] = []
        """What will be stored, or the id of the chain that has the key."""

    def add(self, job: NewJob) -> None:
        dedup, now = job.dedup, self.now
        key = (job.chain_type, "" if dedup is None else dedup.key)
        chain = None if dedup is None else self.key_chains.get(key)
        if dedup and chain and dedup.matches(chain.id, chain.status, now - chain.created_at):
            self.answers.append(chain.id)
            return
        if job.id in self.ids:
            raise JobIdExists(job.id)
        left = self._add_blockers(job) if job.blockers else 0
        status: Status = "blocked" if left else "pending"
        scheduled_at = resolve(job.schedule, now)
        ready = status == "pending" and scheduled_at <= now
        self.ids.add(job.id)
        self.rows.append((
            job.id, job.type_name, job.chain_id, job.chain_type, job.chain_index, status,
            None if left else int(ready), job.priority, scheduled_at,
            None if job.deadline is None else resolve(job.deadline, now),
            None if dedup is None else dedup.key, left, job.trace_context, job.chain_trace_context, job.input.decode(),
        ))  # fmt: skip
        self.answers.append(Created(job.id, job.chain_id, status, ready))
        if job.chain_index > 0:
            # A later job of this call that waits for the chain waits for this job of it.
            known = self.chains.get(job.chain_id)
            if known is not None:
                known.status = status
            return
        chain = self.chains[job.id] = _Chain(job.id, job.type_name, status, now)
        if dedup is not None:
            self.key_chains[key] = chain
            self.keys[key] = job.id

    def _add_blockers(self, job: NewJob) -> int:
        """How many chains the job must wait for."""
        blockers: dict[str, BlockerRef] = {}
        left = 0
        for blocker in job.blockers:
            chain = None if blocker.chain_id == job.chain_id else self.chains.get(blocker.chain_id)
            if chain is None:
                raise BlockerNotFound(job.id, blocker.chain_id)
            if chain.type_name != blocker.chain_type:
                raise JobTypeMismatch(blocker.chain_id, blocker.chain_type, chain.type_name)
            if blocker.chain_id not in blockers:
                blockers[blocker.chain_id] = blocker
                left += chain.status != "completed"
        for position, each in enumerate(blockers.values()):
            done = self.chains[each.chain_id].status == "completed"
            self.edges.append((job.id, position, each.chain_id, each.trace_context, int(done)))
        return left
