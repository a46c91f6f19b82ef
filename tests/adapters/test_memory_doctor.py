"""The doctor in memory: the tables are broken by hand, and repaired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from queuert import SyncClient
from queuert.adapters.in_process import NoNotify
from queuert.adapters.memory import MemoryStore, sync_memory_state
from queuert.adapters.memory.tables import Tables
from queuert.ports.provider import run
from queuert.records.model import BlockerRef, JobRow
from queuert_conformance.state.build import completed, key, new_id, new_job, queue, request
from queuert_conformance.state.unblock import behind


class Ward:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.state = sync_memory_state(self.store)
        jobs = [new_job(), new_job("source"), new_job("keyed", dedup=key("k")), new_job("held")]
        self.ready, self.source, self.keyed, self.held = (job.id for job in jobs)
        self.do(self.operations.create_jobs(jobs))
        self.do(self.operations.claim(request(queue("held"), limit=1)))
        waiting = new_job(**behind(self.source))
        self.blocked = waiting.id
        self.do(self.operations.create_jobs([waiting]))
        self.client: SyncClient[Any] = SyncClient(self.state, NoNotify(), [])
        self.client.sessions.open()

    @property
    def operations(self) -> Any:
        return self.state.operations

    @property
    def tables(self) -> Tables:
        return self.store.committed

    def do(self, program: Any) -> Any:
        return run(self.state.provider, None, program)

    def change(self, job_id: str, **fields: Any) -> None:
        """Without the care that `put` takes of the index."""
        self.tables.jobs[job_id] = replace(self.tables.jobs[job_id], **fields)


def misfile(ward: Ward) -> None:
    priority, scheduled_at, job_id = ward.tables.pending[0]
    ward.tables.pending[0] = (priority - 1, scheduled_at - timedelta(days=1), job_id)


def repeat(ward: Ward) -> None:
    ward.tables.pending.insert(0, ward.tables.pending[0])


def stray_edge(ward: Ward) -> None:
    ward.tables.blockers[new_id()] = (BlockerRef(ward.source, "source"),)


def wrong_chain(ward: Ward) -> None:
    ward.change(ward.held, chain_id=new_id())


def lost_chain(ward: Ward) -> None:
    ward.tables.remove(ward.source)


BREAKS: list[tuple[str, bool, Callable[[Ward], object]]] = [
    ("stray", True, lambda ward: ward.change(ward.ready, status="cancelled")),
    ("stray", True, lambda ward: ward.tables.pending.insert(0, (0, ward.tables.now, new_id()))),
    ("stray", True, repeat),
    ("misfiled", True, misfile),
    ("not-queued", True, lambda ward: ward.tables.pending.pop()),
    ("unleased", True, lambda ward: ward.change(ward.held, leased_until=None)),
    ("miscounted", True, lambda ward: ward.change(ward.blocked, blockers_left=3)),
    ("stray-key", True, lambda ward: ward.tables.keys.update({("keyed", "k"): new_id()})),
    ("stray-edge", True, stray_edge),
    ("wrong-key", False, lambda ward: ward.change(ward.keyed, dedup_key="x")),
    ("broken-chain", False, wrong_chain),
    ("blocker-missing", False, lost_chain),
]


@pytest.mark.parametrize(("code", "repaired", "damage"), BREAKS)
def test_what_is_broken_is_found_and_repaired(code: str, repaired: bool, damage: Callable[[Ward], object]) -> None:
    ward = Ward()
    assert ward.client.doctor(full=True).findings == ()
    damage(ward)
    assert [each.code for each in ward.client.doctor(full=True).findings] == [code]
    assert [each.repaired for each in ward.client.doctor(full=True, fix=True).findings] == [repaired]
    assert [each.code for each in ward.client.doctor(full=True).findings] == ([] if repaired else [code])


def test_a_lost_wake_up_is_repaired() -> None:
    ward = Ward()
    blockers = ward.tables.blockers.pop(ward.blocked)
    ward.do(ward.operations.settle([completed(ward.source)]))
    ward.tables.blockers[ward.blocked] = blockers
    (finding,) = ward.client.doctor(fix=True).findings
    assert (finding.code, finding.repaired) == ("miscounted", True)
    row: JobRow = ward.tables.jobs[ward.blocked]
    assert (row.status, row.blockers_left) == ("pending", 0)
