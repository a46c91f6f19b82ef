"""What the machine has found, each as its shortest program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from tests.machine.machine import StateMachine
from tests.machine.test_machine import EVERY, FACTORIES, machine_on
from tests.machine.world import Step

from queuert.records.dedup import Dedup
from queuert.records.model import BlockerRef, ClaimRequest, JobRow, NewJob, QueueLimit, Settlement, TypeLimit

X, X1, Y, Z, Z1 = (f"00000000-000{number}-7000-8000-000000000000" for number in range(1, 6))

CLAIM = ClaimRequest("w1", 10, (QueueLimit("q", 0, (TypeLimit("a", 10, 60.0),), ("a",)),))


@pytest.fixture(params=EVERY)
def machine(request: pytest.FixtureRequest) -> Iterator[StateMachine]:
    """Both sides, compared after every step."""
    machine = machine_on(FACTORIES[request.param])()
    yield machine
    machine.teardown()


def first(job_id: str, dedup: Dedup | None = None) -> NewJob:
    return NewJob(id=job_id, type_name="a", chain_id=job_id, chain_type="a", chain_index=0, input=b"{}", dedup=dedup)


def continued(chain_id: str, job_id: str, *waits_for: str) -> Settlement:
    blockers = tuple(BlockerRef(blocker, "a") for blocker in waits_for)
    following = NewJob(
        id=job_id, type_name="a", chain_id=chain_id, chain_type="a", chain_index=1, input=b"{}", blockers=blockers
    )
    return Settlement(job_id=chain_id, token=None, status="completed", continuation=following)


def test_a_token_does_not_come_again_after_a_rollback(machine: StateMachine) -> None:
    machine.write(Step("create_jobs", ([first(X)],)))
    machine.begin()
    machine.claim(CLAIM)
    machine.end(undo=True)
    machine.claim(CLAIM)
    settled = machine.write(Step("settle", ([Settlement(job_id=X, token=0, status="completed")],)))
    assert settled.value[1] == [False]
    settled = machine.write(Step("settle", ([Settlement(job_id=X, token=1, status="completed")],)))
    assert settled.value[1] == [True]


def test_a_token_does_not_come_again_after_a_savepoint_is_rolled_back(machine: StateMachine) -> None:
    machine.write(Step("create_jobs", ([first(X)],)))
    machine.begin()
    machine.savepoint()
    machine.claim(CLAIM)
    machine.end_savepoint(undo=True)
    machine.claim(CLAIM)
    settled = machine.write(Step("settle", ([Settlement(job_id=X, token=0, status="completed")],)))
    assert settled.value[1] == [False]


def test_a_window_below_a_microsecond_is_none(machine: StateMachine) -> None:
    machine.write(Step("create_jobs", ([first(X, Dedup("k", scope="any"))],)))
    created = machine.write(Step("create_jobs", ([first(Y, Dedup("k", scope="any", window=1e-7))],)))
    assert created.value[0][1] == Y


def test_a_chain_goes_on_with_the_id_of_one_that_the_same_transaction_deletes(machine: StateMachine) -> None:
    machine.write(Step("create_jobs", ([first(X), first(Z)],)))
    machine.begin()
    machine.write(Step("delete_chains", ([X],), {"cascade": False}))
    machine.write(Step("settle", ([continued(Z, X)],)))
    machine.same_data()
    [chain] = machine.read(False, Step("get_chains", ([Z],))).value
    current: JobRow = chain[2]
    assert current.id == Z


@pytest.mark.parametrize("waiting_first", [True, False])
def test_a_chain_that_goes_on_in_the_same_call_is_waited_for(machine: StateMachine, waiting_first: bool) -> None:
    machine.write(Step("create_jobs", ([first(X), first(Z)],)))
    settlements = [continued(X, X1), continued(Z, Z1, X)]
    machine.write(Step("settle", (settlements[::-1] if waiting_first else settlements,)))
    [waiting] = machine.read(False, Step("get_jobs", ([Z1],))).value
    assert waiting.status == "blocked"


def test_an_id_is_used_again_after_a_job_that_its_key_was_taken_from(machine: StateMachine) -> None:
    machine.write(Step("create_jobs", ([first(X, Dedup("k"))],)))
    again = [first(Y, Dedup("k")), first(Y), replace(first(Z), blockers=(BlockerRef(Y, "a"),))]
    created = machine.write(Step("create_jobs", (again,)))
    assert created.error is None
    [waiting] = machine.read(False, Step("get_jobs", ([Z],))).value
    assert waiting.status == "blocked"


def test_blockers_of_claimed_jobs_are_as_the_claim_leaves_them(machine: StateMachine) -> None:
    """A job that was retried may be claimed while its blocker runs, or together with it."""
    machine.write(Step("create_jobs", ([first(X), replace(first(Z), blockers=(BlockerRef(X, "a"),), priority=0)],)))
    machine.write(Step("settle", ([Settlement(job_id=Z, token=None, status="failed")],)))
    machine.write(Step("retry", ([Z],)))
    outcome = machine.write(Step("claim", (CLAIM,)))
    [[blocker], []] = [claimed[3] for claimed in outcome.value[1]]
    assert blocker[3] == "running"
