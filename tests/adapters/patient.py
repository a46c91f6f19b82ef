"""A database with jobs of every kind, for tests that break it and call the doctor."""

from __future__ import annotations

from typing import Any

from queuert.ports.program import Program
from queuert.ports.provider import run
from queuert.ports.state import SyncStateAdapter
from queuert.records.model import Claimed, NewJob, When
from queuert_conformance.state.build import FUTURE, completed, key, new_job, queue, request
from queuert_conformance.state.unblock import behind


class Patient:
    def __init__(self, state: SyncStateAdapter[Any]) -> None:
        self.state = state
        self.operations: Any = state.operations
        self.do(self.operations.migrate())
        self.ready = self.create(new_job())
        self.later = self.create(new_job(schedule=When(at=FUTURE)))
        self.create(new_job("held"))
        self.running = self.claim("held").job.id
        self.source = self.create(new_job("source"))
        self.blocked = self.create(new_job(**behind(self.source)))
        self.keyed = self.create(new_job("keyed", dedup=key("k")))
        self.create(new_job("done"))
        claim = self.claim("done")
        self.done = claim.job.id
        self.do(self.operations.settle([completed(claim)]))

    def do(self, program: Program[Any]) -> Any:
        return run(self.state.provider, None, program)

    def create(self, job: NewJob) -> str:
        self.do(self.operations.create_jobs([job]))
        return job.id

    def claim(self, type_name: str) -> Claimed:
        found: list[Claimed] = self.do(self.operations.claim(request(queue(type_name), limit=1))).jobs
        return found[0]
