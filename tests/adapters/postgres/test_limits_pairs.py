"""Every pair of operations that meet on one key of a limit: the first is open while the second comes.

Claims wait for nobody. In the end the counts are right and no job was forgotten, whether the first one is committed or
rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace
from tests.adapters.postgres.scenes import Scene, Session, open_scene, violations
from tests.support.postgres import Databases

from queuert.ports.program import Program
from queuert.records.dedup import Dedup
from queuert.records.limits import ALIVE_FOR, DeclaredLimit, LimitRule, RateRule, lane_of
from queuert.records.model import Claimed, NewJob, TypeLimit, When
from queuert.records.pauses import PauseTarget
from queuert_conformance.state.build import completed, continued, failed, given_back, new_job, next_job, queue, request

RULES = {
    "at once": LimitRule(2),
    "in order": LimitRule(1, ordered=True),
    "in a time": LimitRule(2, RateRule(1000, 1.0)),
}
LIMIT = 2


class Case:
    """One key with a job that is running, and four that wait."""

    def __init__(self, scene: Scene, name: str, rule: LimitRule, first: Claimed, waiting: list[NewJob]) -> None:
        self.operations = scene.operations
        self.name = name
        self.rule = rule
        self.lane = lane_of(name, "x")
        self.first = first
        self.waiting = waiting

    def job(self, **fields: Any) -> NewJob:
        return new_job("a", lane=self.lane, **fields)

    def fail_and(self, then: Program[Any]) -> Program[Any]:
        yield from self.operations.settle([failed(self.first)])
        return (yield from then)

    def claim(self, number: int = 2) -> Program[Any]:
        return self.operations.claim(request(queue(TypeLimit("a", 1000, 60.0, (self.name,))), limit=number))

    def declare(self, rule: LimitRule) -> Program[Any]:
        return self.operations.declare_limits(["a"], [DeclaredLimit(self.name, rule, ("a",))], alive_for=ALIVE_FOR)


def _settled(make: Callable[[Claimed], Any]) -> Callable[[Case], Program[Any]]:
    return lambda case: case.operations.settle([make(case.first)])


OPERATIONS: dict[str, Callable[[Case], Program[Any]]] = {
    "claim": lambda case: case.claim(),
    "start": lambda case: case.operations.create_jobs([case.job(), case.job(schedule=When(after=3600))]),
    "complete": _settled(completed),
    "fail": _settled(failed),
    "give back": _settled(given_back),
    "close": _settled(lambda claimed: replace(given_back(claimed), closes=0.001)),
    "continue": lambda case: case.operations.settle(
        [continued(case.first, next_job(case.first.job, "a", lane=case.lane))]
    ),
    "cancel the running one": lambda case: case.operations.cancel_chains([case.first.job.chain_id], cascade=False),
    "cancel a waiting one": lambda case: case.operations.cancel_chains([case.waiting[0].id], cascade=False),
    "delete a waiting one": lambda case: case.operations.delete_chains([case.waiting[0].id], cascade=False),
    "delete the running one": lambda case: case.operations.delete_chains([case.first.job.chain_id], cascade=False),
    "fail, then cancel": lambda case: case.fail_and(
        case.operations.cancel_chains([case.first.job.chain_id], cascade=False)
    ),
    "fail, then repair with another key": lambda case: case.fail_and(
        case.operations.repair(case.first.job.id, b"{}", None, lane_of(case.name, "y"), None)
    ),
    "trigger": lambda case: case.operations.trigger([case.waiting[0].id]),
    "set a priority": lambda case: case.operations.set_priority([case.waiting[1].id], 1),
    "reap": lambda case: case.operations.reap(["a"], [], 10, b'{"code":"X"}', [case.first.job.leased_by or ""]),
    "set": lambda case: case.operations.set_limit(case.name, "x", {"concurrency": 1}),
    "set all": lambda case: case.operations.set_limit(case.name, None, {"concurrency": 1}),
    "clear": lambda case: case.operations.clear_limit(case.name, "x"),
    "pause": lambda case: case.operations.pause(PauseTarget("key", case.lane)),
    "resume": lambda case: case.operations.resume(PauseTarget("key", case.lane)),
    "declare": lambda case: case.declare(replace(case.rule, concurrency=1, weight=2.0)),
    "debounce": lambda case: case.operations.create_jobs(
        [case.job(dedup=_key("k"), collapse="replace", schedule=When(after=0.0))]
    ),
}


def _key(text: str) -> Dedup:
    return Dedup(text, scope="waiting", window=60)


@pytest.fixture
async def scene(postgres: Databases) -> AsyncIterator[Scene]:
    async with open_scene(postgres) as scene:
        yield scene


async def prepare(scene: Scene, name: str, pair: str) -> Case:
    """Each pair has a limit of its own, so that nothing of the pair before is in the way."""
    own = f"{name} {pair}"
    limit = DeclaredLimit(own, RULES[name], ("a",))
    await scene.run(scene.operations.declare_limits(["a"], [limit], alive_for=ALIVE_FOR))
    lane = lane_of(own, "x")
    begun = new_job("a", lane=lane)
    waiting = [new_job("a", lane=lane) for _ in range(3)]
    keyed = new_job("a", lane=lane, dedup=_key("k"), collapse="replace", schedule=When(after=0.0))
    await scene.start(begun)
    case = Case(scene, own, RULES[name], await _one(scene, own), [*waiting, keyed])
    await scene.start(*waiting)
    await scene.start(keyed)
    return case


async def _one(scene: Scene, name: str) -> Claimed:
    (claimed,) = await scene.claim(request(queue(TypeLimit("a", 1000, 60.0, (name,))), limit=1))
    return claimed


async def meet(scene: Scene, sessions: list[Session], case: Case, first: str, second: str, *, commit: bool) -> None:
    one, other = sessions
    await one.begin()
    await one.run(OPERATIONS[first](case))
    going = scene.go(other.run_alone(OPERATIONS[second](case)))
    if second == "claim":
        await asyncio.wait_for(asyncio.shield(going), 30)  # it waits for nobody
    else:
        blocked = asyncio.create_task(scene.blocked(other, by=one))
        await asyncio.wait({going, blocked}, return_when=asyncio.FIRST_COMPLETED)
        blocked.cancel()
        with suppress(asyncio.CancelledError):
            await blocked
    await (one.commit() if commit else one.rollback())
    await asyncio.wait_for(going, 30)


async def check(scene: Scene, case: Case) -> None:
    most = 1 if case.rule.ordered else LIMIT
    assert len(scene.watch(f"SELECT 1 FROM queuert_running WHERE lane = '{case.lane}'")) <= most
    operations = scene.operations
    await scene.run(operations.resume(PauseTarget("key", case.lane)))
    for key in (None, "x"):
        await scene.run(operations.clear_limit(case.name, key))
    await scene.run(operations.reap(["a"], [], 100, b'{"code":"X"}', ["worker-1"]))
    stopped = scene.watch(f"SELECT chain_id::text FROM queuert_job WHERE lane = '{case.lane}' AND status = 'failed'")
    await scene.run(operations.delete_chains(stopped, cascade=False))
    in_line = f"SELECT id::text FROM queuert_line WHERE lane IN ('{case.lane}', '{lane_of(case.name, 'y')}')"
    for _ in range(50):
        claimed = (await scene.run(case.claim(100))).jobs
        assert sum(each.job.lane == case.lane for each in claimed) <= most
        await scene.settle(*(completed(each) for each in claimed))
        if not scene.watch(in_line):
            break
        await asyncio.sleep(0 if claimed else 0.005)  # it may be closed for a millisecond
    assert scene.watch(in_line) == [], "forgotten"
    assert len((await scene.run(case.claim())).jobs) == 0
    for table in ("queuert_lane", "queuert_turn"):
        assert scene.watch(f"SELECT running FROM {table} WHERE lane = '{case.lane}' AND running <> 0") == []
    later = f"SELECT id::text FROM queuert_job WHERE lane = '{case.lane}' AND status = 'pending'"
    await scene.run(operations.cancel_chains(scene.watch(later), cascade=False))


ALWAYS = ("claim", "complete", "give back", "cancel a waiting one", "set")
"""Others are soak."""


@pytest.mark.parametrize("first", ALWAYS)
async def test_pairs(scene: Scene, first: str) -> None:
    sessions = await scene.sessions(2)
    for number, second in enumerate(OPERATIONS):
        await one_pair(scene, sessions, "at once", first, second, commit=number % 3 < 2)
    assert violations(scene.watch) == {}
    assert await scene.deadlocks() == 0


@pytest.mark.soak
@pytest.mark.parametrize("first", OPERATIONS)
@pytest.mark.parametrize("name", list(RULES))
async def test_all_pairs(scene: Scene, name: str, first: str) -> None:
    sessions = await scene.sessions(2)
    for second in OPERATIONS:
        for commit in (True, False):
            await one_pair(scene, sessions, name, first, second, commit=commit)
            assert violations(scene.watch) == {}
    assert await scene.deadlocks() == 0


async def one_pair(scene: Scene, sessions: list[Session], name: str, first: str, second: str, *, commit: bool) -> None:
    case = await prepare(scene, name, f"{first}, {second}, {commit}")
    try:
        await meet(scene, sessions, case, first, second, commit=commit)
        await check(scene, case)
    except BaseException as error:
        error.add_note(f"{first} ({'committed' if commit else 'rolled back'}), then {second}")
        raise
