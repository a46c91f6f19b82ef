"""A job whose handler never began loses no attempt: the worker stores which handlers may begin, before they do."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.killed_ahead import BEGUN, HELD, SLOTS, noting_handlers
from tests.behaviour.steps import PATIENCE, Gate, Step, done, end_lease, eventually, job, patiently, running, start
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Client, Handlers, Worker
from queuert.adapters.sqlite.horizons import Horizons
from queuert.worker.claims import filling
from queuert.worker.policy import horizon, prefetch

JOBS = 4000
BYSTANDERS = 50
"""Jobs that never began, and may have lost their attempt all the same."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Every worker claims five jobs ahead from its start, and lets two of them begin at a time."""
    create = prefetch.Prefetch.__init__

    def believe(self: prefetch.Prefetch, slots: int, most: int, now: float) -> None:
        create(self, slots, most, now)
        self.ahead = min(5, most)

    monkeypatch.setattr(prefetch.Prefetch, "__init__", believe)
    monkeypatch.setattr(prefetch.Prefetch, "observe", lambda *_: None)
    monkeypatch.setattr(filling, "STALE", 3600.0)
    monkeypatch.setattr(horizon, "LEAST", 2)
    monkeypatch.setattr(horizon, "MOST", 2)
    monkeypatch.setattr(horizon, "MOST_PER_SLOT", 0)
    monkeypatch.setattr(horizon, "LOW", 2)
    # On SQLite the horizon is stored in the row then, where it can be held up.
    monkeypatch.setattr(Horizons, "create", lambda *_: False)
    return 5


def noting(gate: Gate | None = None) -> tuple[Handlers[Any], list[int]]:
    handlers, ran = Handlers[Any](), list[int]()

    @handlers.handles(Step, max_losses=1)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        if gate is not None:
            await gate()
        return attempt.job.number

    return handlers, ran


async def held(client: Client[Any], number: int) -> None:
    async def are_held() -> bool:
        return len(await running(client)) == number

    await eventually(are_held)


@pytest.mark.drivers
@pytest.mark.parametrize("seconds", [0.0, pytest.param(0.003, marks=pytest.mark.soak)])
async def test_a_killed_worker(setting: Setting, tmp_path: Path, seconds: float) -> None:
    """A real process, killed with jobs held ahead that have one attempt: those that never began still have it."""
    if setting.state == "memory":
        pytest.skip("the data would die with the process")
    path = tmp_path / "begun"
    async with setting.connect([Step]) as client:
        for _ in range(JOBS // 1000):
            await start(client, 1000)
        async with child("killed_ahead", setting.url, str(path), str(seconds)) as worker:
            assert await worker.exit_code() == -signal.SIGKILL
        begun = set(path.read_text().split())
        assert len(begun) >= BEGUN
        held_ahead = [each for each in await running(client) if each not in begun]
        assert len(held_ahead) >= HELD
        unsettled = begun - {record.id for record in await _all(client, "completed")}
        assert unsettled
        other = Worker(client, noting_handlers(str(path), 0, lambda: None), concurrency=100, lease=PATIENCE)
        async with other:
            await eventually(lambda: _ended(client))
        failed = {record.id: record for record in await _all(client, "failed")}
        assert unsettled <= failed.keys()
        never_began = failed.keys() - begun
        assert len(never_began) <= BYSTANDERS, f"{len(never_began)} of {len(held_ahead)} that were held ahead"
        assert len(never_began) < SLOTS + len(held_ahead)
        assert all(record.last_error["code"] == "LEASE_EXPIRED" for record in failed.values() if record.last_error)
        for record in await _all(client, "completed"):
            assert (record.attempt_number, record.last_error) == (1, None)


async def _all(client: Client[Any], status: Any) -> list[Any]:
    return [record async for record in client.iter_jobs(Step, status=status)]


async def test_a_handler_waits_for_the_horizon(setting: Setting, few: int) -> None:
    """What is claimed ahead begins only when it is stored that it may."""
    points = Points()
    handlers, ran = noting()
    client = watched(setting.connect([Step]), points)
    async with client:
        stored = points.hold("move_horizon")
        await start(client, 1 + few)
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await worker.start()
        await stored.arrival()
        await eventually(lambda: len(ran) == 2)  # those that begin at once
        await held(client, few + 1 - 2)
        assert ran == [0, 1]
        stored.open()
        await eventually(lambda: done(client, 1 + few))
        assert ran == list(range(1 + few))
        assert await worker.stop()


async def test_what_may_begin_is_what_counts(setting: Setting, few: int) -> None:
    """At the moment of a crash: an attempt counts exactly for those that could begin."""
    points, gate = Points(), Gate()
    handlers, ran = noting(gate)
    others, ran_elsewhere = noting()
    client = watched(setting.connect([Step]), points)
    async with client:
        chains = await start(client, 1 + few)
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, lease=3600)
        await worker.start()
        await gate.arrival()
        await eventually(lambda: points.counts["move_horizon.done"] == 1)
        silence = [points.hold(each) for each in ("claim", "reap", "settle")]
        assert ran == [0]  # the claim lets two begin, and the move two of those that wait
        for chain in chains:
            await end_lease(client, chain)
        async with setting.connect([Step]) as healthy:
            async with Worker(healthy, others, poll_interval=0.02):
                await eventually(lambda: _ended(healthy))
            records = [await job(healthy, chain) for chain in chains]
        assert [record.status for record in records] == ["failed"] * 3 + ["completed"] * 3
        assert [record.attempt_number for record in records[3:]] == [1] * 3
        assert [record.last_error for record in records[3:]] == [None] * 3
        assert ran_elsewhere == [3, 4, 5]
        for each in (*silence, gate):
            each.open()
        await patiently(worker.stop())


async def test_what_was_given_back_is_not_passed(setting: Setting, few: int) -> None:
    """At the moment of a crash: jobs that were given back have their attempt, also if that is not yet stored."""
    points, gates = Points(), [Gate(), Gate()]
    handlers, others = Handlers[Any](), noting()[0]

    @handlers.handles(Step, max_attempts=1)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.job.number in (0, 10):
            await gates[attempt.job.number // 10]()
        return attempt.job.number

    client = watched(setting.connect([Step]), points)
    async with client:
        chains = await start(client, 1 + few)
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, lease=3600)
        await worker.start()
        await gates[0].arrival()
        await eventually(lambda: points.counts["move_horizon.done"] == 1)
        stored = points.hold("settle")
        assert worker._run is not None
        worker._run._attempts.give_back_waiting()  # as behind a slow handler
        async with client.transaction() as tx:
            chains += await client.start_many(tx, [Step(number=10 + each) for each in range(few)])
        gates[0].open()
        await gates[1].arrival()
        await held(client, 1 + few + few)
        assert points.counts["move_horizon"] == 1
        silence = [points.hold(each) for each in ("claim", "reap")]
        for chain in chains:
            await end_lease(client, chain)
        async with setting.connect([Step]) as healthy:
            async with Worker(healthy, others, poll_interval=0.02):
                await eventually(lambda: _ended(healthy))
            records = [await job(healthy, chain) for chain in chains]
        # Those that could begin at once, or after the first move, may have begun.
        assert [record.status for record in records[: 1 + few]] == ["failed"] * 3 + ["completed"] * 3
        assert [record.last_error for record in records if record.status == "completed"] == [None] * 6
        for each in (*silence, stored, gates[1]):
            each.open()
        await patiently(worker.stop())


async def _ended(client: Client[Any]) -> bool:
    """Whether no step is left to run."""
    return not any(each.pending or each.running for each in await client.stats() if each.job_type == "step")


async def test_a_horizon_that_cannot_be_stored(
    setting: Setting, few: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The jobs wait, and it is tried again. That is logged once, with its end."""
    monkeypatch.setattr(horizon, "RETRY_AFTER", 0.01)
    points = Points()
    handlers, ran = noting()
    client = watched(setting.connect([Step]), points)
    async with client:
        points.fail_times("move_horizon", 3)
        await start(client, 1 + few)
        await Worker(client, handlers, poll_interval=setting.poll_interval).drain()
        assert ran == list(range(1 + few))
        assert points.counts["move_horizon"] > 3
    logged = [record.getMessage() for record in caplog.records if "horizon" in record.getMessage()]
    assert sum("which handlers may begin" in record.getMessage() for record in caplog.records) == 1
    assert logged == ["storing the horizon works again; it had failed 2 times more than was logged"]


async def test_without_claims_ahead_nothing_is_stored(setting: Setting) -> None:
    """With `prefetch=0` all jobs begin at once: the claim itself says so."""
    points = Points()
    handlers, ran = noting()
    client = watched(setting.connect([Step]), points)
    async with client:
        await start(client, 100)
        await Worker(client, handlers, concurrency=10, prefetch=0, poll_interval=setting.poll_interval).drain()
        assert len(ran) == 100
        assert points.counts["move_horizon"] == 0


async def test_ordinals_go_on_after_a_stop(setting: Setting, few: int) -> None:
    """A worker that is started again has the same id, so its ordinals and its horizon go on."""
    points = Points()
    handlers, _ = noting()
    client = watched(setting.connect([Step]), points)
    async with client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        for _ in range(2):
            await start(client, 20)
            await worker.drain()
        moves = [args[1] for name, args in points.calls if name == "move_horizon"]
        assert moves == sorted(set(moves))
        firsts = [args[0].first_ordinal for name, args in points.calls if name == "claim"]
        assert firsts == sorted(set(firsts))


async def test_moves_are_few(setting: Setting) -> None:
    """One write for many jobs, if handlers are quick and there are many slots."""
    points = Points(records=False)
    handlers, ran = noting()
    client = watched(setting.connect([Step]), points)
    async with client:
        for _ in range(5):
            await start(client, 1000)
        await Worker(client, handlers, concurrency=100, poll_interval=setting.poll_interval).drain()
        assert len(ran) == 5000
        assert points.counts["move_horizon"] < 100, points.counts
