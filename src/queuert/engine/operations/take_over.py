"""Settling a chain's current job without a worker."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from queuert.base.statuses import OPEN
from queuert.engine.engine import Engine
from queuert.engine.operations.chains import lock_chains
from queuert.engine.operations.ending import settle, settlement_for
from queuert.engine.transaction import Hooks
from queuert.errors import ChainEnded, JobTypeMismatch
from queuert.jobs.job import Job
from queuert.ports.program import Program
from queuert.records.model import JobRow


class TakenOver:
    """The current job of a chain, locked by this transaction.

    `settle` moves on to the next one, if there is one.
    """

    def __init__(self, engine: Engine, hooks: Hooks, type_name: str | None, row: JobRow) -> None:
        self._engine = engine
        self._hooks = hooks
        self._type_name = type_name
        self._row = row
        self.job: Job[Any, Any] | None = None

    @property
    def row(self) -> JobRow:
        return self._row

    def _checked(self) -> JobRow:
        """The job, if it is one we may settle."""
        row = self._row
        if row.status not in OPEN:
            raise ChainEnded(row.chain_id, row.status)
        if self._type_name is not None and row.type_name not in self._engine.jobs.names_of(self._type_name):
            raise JobTypeMismatch(row.id, self._type_name, row.type_name)
        return row

    def read(self) -> Program[None]:
        """Check the job, and decode it with the outputs of its blockers."""
        row = self._checked()
        job_type = self._engine.jobs.require(row.type_name)
        (blockers,) = yield from self._engine.state.job_blockers([row.id])
        self.job = job_type.decode_input(row.input, blockers)

    def settle(self, result: Any) -> Program[None]:
        row = self._checked()
        job_type = self._engine.jobs.require(row.type_name)
        settlement = settlement_for(self._engine, job_type, row, result, token=None)
        settled = yield from settle(self._engine, self._hooks, [(row, settlement)])
        if settlement.discard and settled.applied[0]:
            self._row = replace(row, status="completed")  # the chain is deleted, or will be
            return
        (chain,) = yield from lock_chains(self._engine, [row.chain_id])
        self._row = chain.current
        if not settled.applied[0]:
            # It was settled or cancelled earlier in this transaction.
            raise ChainEnded(row.chain_id, chain.current.status)
        if isinstance(result, Job):
            self.job = result


def take_over(engine: Engine, hooks: Hooks, chain_id: str, type_name: str | None) -> Program[TakenOver]:
    """Lock the chain's current job.

    With a type, raises `JobTypeMismatch` if the chain has moved on to a job of another type.
    """
    (chain,) = yield from lock_chains(engine, [chain_id])
    taken = TakenOver(engine, hooks, type_name, chain.current)
    yield from taken.read()
    return taken
