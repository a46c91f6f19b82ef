"""Jobs that are claimed ahead of their slots: held like running ones, and given back when it takes too long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, Step, done, eventually, job, patiently, running, start

from queuert import Attempt, Handlers, InvalidArgument, Queue, Worker
from queuert.worker.claims import filling
from queuert.worker.policy import prefetch

pytestmark = pytest.mark.in_turn


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> int:
    """Every worker that may claim ahead believes from its start that its handlers are quick enough for five more."""

    create = prefetch.Prefetch.__init__

    def believe(self: prefetch.Prefetch, slots: int, most: int, now: float) -> None:
        create(self, slots, most, now)
        self.ahead = min(5, most)

    monkeypatch.setattr(prefetch.Prefetch, "__init__", believe)
    monkeypatch.setattr(prefetch.Prefetch, "observe", lambda *_: None)
    monkeypatch.setattr(filling, "STALE", 3600.0)
    return 5


def gated() -> tuple[Handlers[Any], Gate, list[int]]:
    handlers, gate, ran = Handlers[Any](), Gate(), list[int]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        ran.append(attempt.job.number)
        await gate()
        return attempt.job.number

    return handlers, gate, ran


async def held(client: Any, number: int) -> None:
    async def are_held() -> bool:
        return len(await running(client)) == number

    await eventually(are_held)


async def one_running(client: Any, worker: Worker) -> None:
    """One job is running, so that what comes now is claimed ahead."""
    await start(client, 1)
    await worker.start()
    await held(client, 1)


async def test_they_run_in_their_order(setting: Setting, ahead: int) -> None:
    handlers, gate, ran = gated()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await one_running(client, worker)
        await start(client, 10)
        await held(client, 1 + ahead)
        assert ran == [0]
        gate.open()
        await eventually(lambda: done(client, 11))
        assert ran == [0, *range(10)]
        assert await worker.stop()


async def test_a_stop_gives_them_back_untouched(setting: Setting, ahead: int) -> None:
    handlers, gate, ran = gated()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await one_running(client, worker)
        chains = await start(client, 10)
        await held(client, 1 + ahead)
        stopping = asyncio.create_task(worker.stop())
        await held(client, 1)  # before the running one has ended
        gate.open()
        assert await patiently(stopping)
        assert ran == [0]
        for chain in chains:
            record = await job(client, chain)
            assert (record.status, record.attempt_number, record.leased_by) == ("pending", 0, None)


async def test_behind_a_slow_handler_they_are_given_back(
    setting: Setting, ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers, gate, ran = gated()
    others, other_gate, ran_elsewhere = gated()
    other_gate.open()
    async with setting.connect([Step]) as client:
        slow = Worker(client, handlers, poll_interval=setting.poll_interval)
        await one_running(client, slow)
        await start(client, ahead)
        await held(client, 1 + ahead)
        async with Worker(client, others, poll_interval=0.02, prefetch=0):
            assert ran_elsewhere == []
            monkeypatch.setattr(filling, "STALE", 0.0)
            slow._run._next_turn.event.set()  # type: ignore[union-attr]  # its next turn, which would come by itself
            await eventually(lambda: len(ran_elsewhere) >= ahead)
            gate.open()
            await eventually(lambda: done(client, 1 + ahead))
        await slow.stop()
        assert sorted(ran + ran_elsewhere) == [0, *range(ahead)]


async def test_what_is_lost_meanwhile_does_not_run(setting: Setting, ahead: int) -> None:
    handlers, gate, ran = gated()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, lease=30, renew_interval=0.05)
        await one_running(client, worker)
        chains = await start(client, ahead)
        await held(client, 1 + ahead)
        async with client.transaction() as tx:
            assert len(await client.cancel(tx, chains[1])) == 1
        # The renewal notices, also where no notification tells.
        held_now = worker._run._attempts.claims  # type: ignore[union-attr]
        await eventually(lambda: held_now[chains[1].id].signal.aborted)
        gate.open()
        await worker.drain()
        assert ran == [0, 0, 2, 3, 4]
        assert (await job(client, chains[1])).status == "cancelled"
        assert await worker.stop()


@pytest.mark.parametrize(
    "options", [{"prefetch": 0}, {"cluster_cap": 100}, {"queues": [Queue("default", max_concurrency=9)]}]
)
async def test_not_at_all(setting: Setting, ahead: int, options: dict[str, Any]) -> None:
    """Switched off; or there are caps, and what is held ahead would count against what others may run."""
    handlers, gate, _ = gated()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, concurrency=2, poll_interval=setting.poll_interval, **options)
        await one_running(client, worker)
        await start(client, 10)
        await held(client, 2)
        gate.open()
        await eventually(lambda: done(client, 11))
        assert await worker.stop()


@pytest.mark.parametrize("wrong", [-1, 1.5, None, True, "many"])
async def test_a_wrong_number(wrong: Any) -> None:
    handlers, _, _ = gated()
    async with Setting("memory", "in-process", None).connect([Step]) as client:  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="prefetch must be 0"):
            Worker(client, handlers, prefetch=wrong)
