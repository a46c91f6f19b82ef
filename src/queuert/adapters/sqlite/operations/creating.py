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
from queuert.adapters.sqlite.operations.rows import Row, add_seconds, resolve, resolve_due
from queuert.base.statuses import Status
from queuert.errors import BlockerNotFound, JobIdExists, JobTypeMismatch, QueuertError
from queuert.ports.program import Program
from queuert.records.dedup import trailing_delay
from queuert.records.model import BlockerRef, ChainRow, Created, NewJob

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
            _found(job, chains[answer]) if isinstance(answer, str) else answer
            for job, answer in zip(jobs, plan.answers, strict=True)
        ]

    def replace_waiting(self, jobs: Sequence[NewJob]) -> Program[list[ChainRow]]:
        if not jobs:
            return []
        return (yield from together(self._replace(jobs)))

    def _replace(self, jobs: Sequence[NewJob]) -> Program[list[ChainRow]]:
        """As part of one command."""
        plan = _Plan(self.now())
        plan.replaced = [plan.replacement(job, job.id) for job in jobs]
        yield from self._write_replaced(plan)
        return [chain for chain in (yield from self.get_chains([job.id for job in jobs])) if chain is not None]

    def _look(self, plan: _Plan, jobs: Sequence[NewJob]) -> Program[None]:
        keys = list(dict.fromkeys((job.chain_type, job.dedup.key) for job in jobs if job.dedup is not None))
        blockers = list(dict.fromkeys(blocker.chain_id for job in jobs for blocker in job.blockers))
        if not keys and not blockers:
            return
        rows: list[Row] = yield self.statement("create_jobs.look", keys=array(keys), blockers=array(blockers))
        for kind, position, *chain in rows:
            if kind == "key":
                plan.key_chains[keys[position]] = _Chain(*chain)
            elif kind == "pruned":
                plan.pruned[keys[position]] = _Chain(*chain)
            else:
                plan.chains[blockers[position]] = _Chain(*chain)

    def _write(self, plan: _Plan) -> Program[None]:
        """Writes nothing if every job was deduplicated."""
        yield from self._write_replaced(plan)
        if not plan.rows:
            return
        stored: list[Row] = yield self.statement("create_jobs.insert", jobs=array(plan.rows), now=plan.now)
        if len(stored) != len(plan.rows):
            new = {row[0] for row in stored}
            raise JobIdExists(next(row[0] for row in plan.rows if row[0] not in new))
        if plan.edges:
            yield self.statement("create_jobs.wait_for", edges=array(plan.edges))
        if plan.keys:
            keys = [(*key, chain_id, *window) for key, (chain_id, *window) in plan.keys.items()]
            yield self.statement("create_jobs.hold_keys", keys=array(keys))

    def _write_replaced(self, plan: _Plan) -> Program[None]:
        if plan.replaced:
            yield self.statement("create_jobs.replace", jobs=array(plan.replaced), now=plan.now)

    def _refuse_taken_ids(self, plan: _Plan, jobs: Sequence[NewJob]) -> Program[None]:
        """The last of the jobs has no answer yet."""
        stored = [
            answer is None or (isinstance(answer, Created) and not answer.pruned) for answer in (*plan.answers, None)
        ]
        ids = [job.id for job, is_stored in zip(jobs, stored, strict=True) if is_stored]
        for job_id, row in zip(ids, (yield from self.get_jobs(ids)), strict=True):
            if row is not None:
                raise JobIdExists(job_id)


def _found(job: NewJob, chain: ChainRow) -> Created:
    replaced = job.collapse in ("replace", "trail")
    return Created(chain.first.id, chain.first.id, chain.current.status, ready=False, existing=chain, replaced=replaced)


class _Chain(msgspec.Struct):
    """What must be known about a chain that is stored, or comes earlier in the call."""

    id: str
    type_name: str
    status: Status
    created_at: int
    waiting: bool | int
    """Whether it has not begun."""
    replaceable: bool | int
    """The same, and it has no blockers."""
    due_at: int
    """When it was due at first."""


class _Plan:
    """What will be written and answered."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.key_chains: dict[_Key, _Chain] = {}
        self.pruned: dict[_Key, _Chain] = {}
        """Chains that are gone, with keys that have to match for longer."""
        self.chains: dict[str, _Chain] = {}
        self.ids: set[str] = set()
        self.rows: list[tuple[Any, ...]] = []
        self.edges: list[tuple[str, int, str, str | None, int]] = []
        self.keys: dict[_Key, tuple[str, str | None, int | None, int | None]] = {}
        """The chain, and its window, if it outlives the chain: the chain again, begin and end."""
        self.replaced: list[tuple[Any, ...]] = []
        self.answers: list[Created | str] = []
        """What will be stored, or the id of the chain that has the key."""

    def add(self, job: NewJob) -> None:
        dedup, now = job.dedup, self.now
        key = (job.chain_type, "" if dedup is None else dedup.key)
        scheduled_at = resolve_due(job.schedule, now)
        chain = None if dedup is None else self.key_chains.get(key)
        gone = None if dedup is None or chain else self.pruned.get(key)
        if dedup and job.collapse == "trail":
            if chain and chain.replaceable and chain.due_at > now and chain.id not in dedup.exclude:
                self._collapse(job, chain)
                return
            known = chain or gone
            delay = trailing_delay(now - known.due_at, dedup.window_length) if known else None
            scheduled_at = now if delay is None else now + delay
        elif dedup and chain and self._matches(job, chain):
            self._collapse(job, chain)
            return
        elif dedup and gone and dedup.matches_pruned(gone.id, gone.status, now - gone.created_at):
            self.answers.append(Created(gone.id, gone.id, gone.status, ready=False, pruned=True))
            return
        if job.id in self.ids:
            raise JobIdExists(job.id)
        left = self._add_blockers(job) if job.blockers else 0
        status: Status = "blocked" if left else "pending"
        ready = status == "pending" and scheduled_at <= now
        self.ids.add(job.id)
        self.rows.append((
            job.id, job.type_name, job.chain_id, job.chain_type, job.chain_index, status,
            None if left else ready * (1 if job.lane is None else 2), job.priority, scheduled_at,
            None if job.deadline is None else resolve(job.deadline, now),
            None if dedup is None else dedup.key, left, job.trace_context, job.chain_trace_context, job.lane,
            job.input.decode(), job.weight,
        ))  # fmt: skip
        self.answers.append(Created(job.id, job.chain_id, status, ready))
        if job.chain_index > 0:
            # A later job of this call that waits for the chain waits for this job of it.
            known = self.chains.get(job.chain_id)
            if known is not None:
                known.status = status
            return
        begins = scheduled_at if job.collapse == "trail" else now
        chain = self.chains[job.id] = _Chain(
            job.id, job.type_name, status, now, waiting=True, replaceable=not job.blockers, due_at=begins
        )
        if dedup is not None:
            self.key_chains[key] = chain
            outlives = dedup.outlives
            if outlives is None:
                self.keys[key] = (job.id, None, None, None)
            else:
                self.keys[key] = (job.id, job.id, begins, add_seconds(begins, outlives))

    def _matches(self, job: NewJob, chain: _Chain) -> bool:
        waiting = chain.waiting if job.collapse is None else chain.replaceable
        age = self.now - chain.created_at
        return job.dedup is not None and job.dedup.matches(chain.id, chain.status, age, waiting=bool(waiting))

    def _collapse(self, job: NewJob, chain: _Chain) -> None:
        """Find this chain, and change it if the job asks for that."""
        self.answers.append(chain.id)
        if job.collapse in ("postpone", "replace", "trail"):
            self.replaced.append(self.replacement(job, chain.id))

    def replacement(self, job: NewJob, chain_id: str) -> tuple[Any, ...]:
        """The first job of the chain, its new time and the end of the window, and the rest."""
        time: tuple[int | None, int | None] = (None, None)
        if job.collapse != "trail":
            assert job.dedup is not None
            time = (resolve_due(job.schedule, self.now), job.dedup.window_length)
        rest: tuple[Any, ...] = (None, None, None)
        if job.collapse != "postpone":
            deadline = None if job.deadline is None else resolve(job.deadline, self.now)
            rest = (job.priority, deadline, job.input.decode())
        return (chain_id, *time, *rest, job.lane, job.weight)

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
