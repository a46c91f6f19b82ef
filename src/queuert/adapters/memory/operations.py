"""The operations of the state port. Each is one command; empty arguments need none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from queuert.adapters.memory import claiming, creating, deleting, reading, settling
from queuert.adapters.memory.command import Read, Write
from queuert.adapters.memory.tables import Tables
from queuert.adapters.memory.view import View
from queuert.model import (
    BlockerRow,
    ChainFilter,
    ChainRow,
    ClaimRequest,
    ClaimResult,
    Created,
    Deleted,
    JobFilter,
    JobRow,
    Lease,
    NewJob,
    PageRequest,
    Settled,
    Settlement,
    TypeStats,
)
from queuert.ports.program import Program
from queuert.ports.state import StateOperations

T = TypeVar("T")


class MemoryOperations:
    """The single writer makes row locks needless: `lock=True` changes nothing here."""

    def create_jobs(self, jobs: Sequence[NewJob]) -> Program[list[Created]]:
        if not jobs:
            return []
        return (yield from _write(lambda tables: creating.create_jobs(tables, jobs)))

    def get_jobs(self, ids: Sequence[str]) -> Program[list[JobRow | None]]:
        if not ids:
            return []
        return (yield from _read(lambda view, _: reading.get_jobs(view, ids)))

    def get_chains(self, ids: Sequence[str], *, lock: bool = False) -> Program[list[ChainRow | None]]:  # noqa: ARG002
        if not ids:
            return []
        return (yield from _read(lambda view, _: reading.get_chains(view, ids)))

    def claim(self, request: ClaimRequest) -> Program[ClaimResult]:
        if not request.queues:
            return ClaimResult([], more=False)
        return (yield from _write(lambda tables: claiming.claim(tables, request)))

    def renew(self, leases: Sequence[Lease]) -> Program[list[str]]:
        if not leases:
            return []
        return (yield from _write(lambda tables: claiming.renew(tables, leases)))

    def hold(self, job_id: str, token: int, *, lock: bool = True) -> Program[bool]:  # noqa: ARG002
        return (yield from _write(lambda tables: claiming.is_held(tables, job_id, token)))

    def settle(self, settlements: Sequence[Settlement]) -> Program[Settled]:
        if not settlements:
            return Settled([], [], [])
        return (yield from _write(lambda tables: settling.settle(tables, settlements)))

    def reap(self, types: Sequence[str], ignored: Sequence[str], limit: int, error: bytes) -> Program[list[JobRow]]:
        if not types or limit <= 0:
            return []
        return (yield from _write(lambda tables: claiming.reap(tables, types, ignored, limit, error)))

    def next_available_in(self, types: Sequence[str]) -> Program[float | None]:
        if not types:
            return None
        return (yield from _read(lambda view, now: reading.next_available_in(view, types, now)))

    def trigger(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        if not job_ids:
            return []
        return (yield from _write(lambda tables: settling.trigger(tables, job_ids)))

    def retry(self, job_ids: Sequence[str]) -> Program[list[JobRow | None]]:
        if not job_ids:
            return []
        return (yield from _write(lambda tables: settling.retry(tables, job_ids)))

    def delete_chains(self, ids: Sequence[str], *, cascade: bool) -> Program[Deleted]:
        if not ids:
            return Deleted([], {})
        return (yield from _write(lambda tables: deleting.delete_chains(tables, ids, cascade=cascade)))

    def list_jobs(self, where: JobFilter, page: PageRequest) -> Program[list[JobRow]]:
        return (yield from _read(lambda view, _: reading.list_jobs(view, where, page)))

    def list_chains(self, where: ChainFilter, page: PageRequest) -> Program[list[ChainRow]]:
        return (yield from _read(lambda view, _: reading.list_chains(view, where, page)))

    def list_chain_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        return (yield from _read(lambda view, _: reading.list_chain_jobs(view, chain_id, page)))

    def list_blocked_jobs(self, chain_id: str, page: PageRequest) -> Program[list[JobRow]]:
        return (yield from _read(lambda view, _: reading.list_blocked_jobs(view, chain_id, page)))

    def job_blockers(self, job_ids: Sequence[str]) -> Program[list[list[BlockerRow]]]:
        if not job_ids:
            return []
        return (yield from _read(lambda view, _: reading.job_blockers(view, job_ids)))

    def stats(self) -> Program[list[TypeStats]]:
        return (yield from _read(reading.stats))

    def migrate(self) -> Program[list[int]]:
        """There is no schema; but a closed provider says so here too."""
        return (yield from _read(lambda _view, _now: list[int]()))

    def vacuum(self) -> Program[None]:
        return (yield from _read(lambda _view, _now: None))


def _read(function: Callable[[View, datetime], T]) -> Program[T]:
    result: T = yield Read(function)
    return result


def _write(function: Callable[[Tables], T]) -> Program[T]:
    result: T = yield Write(function)
    return result


if TYPE_CHECKING:
    _: type[StateOperations] = MemoryOperations
