"""Pause and resume while workers run: what is paused waits, what runs goes on or is told to stop."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.programs.working_elsewhere import HOUR, WAITS
from tests.behaviour.steps import PATIENCE, Gate, Step, eventually, job, patiently, running, start
from tests.behaviour.test_prefetch import ahead, gated, held, one_running
from tests.behaviour.watching import Points, watched

import queuert
from queuert import EVERYTHING, Attempt, Client, EntryJob, Handlers, Queue, SyncAttempt, Worker

__all__ = ["ahead"]


class Light(EntryJob[int], name="light"):
    pass


TARGETS: dict[str, Any] = {"type": Step, "name": "step", "queue": Queue("slow"), "everything": EVERYTHING}


async def pause(client: Client[Any], target: Any, **values: Any) -> None:
    async with client.transaction() as tx:
        await client.pause(tx, target, **values)


async def resume(client: Client[Any], target: Any) -> None:
    async with client.transaction() as tx:
        assert await client.resume(tx, target) is not None


def both(ran: list[str]) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step, queue="slow")
    async def step(attempt: Attempt[Step]) -> int:
        ran.append("step")
        return attempt.number

    @handlers.handles(Light)
    async def light(attempt: Attempt[Light]) -> int:
        ran.append("light")
        return attempt.number

    return handlers


@pytest.mark.channels
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
async def test_what_is_paused_waits_and_runs_as_soon_as_it_is_resumed(setting: Setting, target: Any) -> None:
    """The worker would look for itself only much later: it is told. Starting goes on."""
    ran: list[str] = []
    async with setting.connect([Step, Light]) as client:
        worker = Worker(client, both(ran), poll_interval=setting.poll_interval)
        async with worker:
            await pause(client, target)
            (chain,) = await start(client, 1)
            light = await client.submit(Light())
            if target is not EVERYTHING:
                assert await client.wait(light, timeout=PATIENCE) == 1
            await patiently(worker.drain())
            assert "step" not in ran
            assert (await job(client, chain)).status == "pending"
            await resume(client, target)
            assert await client.wait(chain, timeout=PATIENCE) == 1
            assert await client.wait(light, timeout=PATIENCE) == 1
        assert await client.list_pauses() == []


async def test_it_ends_by_itself(setting: Setting) -> None:
    """No message tells that, and the worker would look only in an hour."""
    ran: list[str] = []
    async with setting.connect([Step, Light]) as client:
        await pause(client, Step, until=timedelta(seconds=0.5))
        (chain,) = await start(client, 1)
        async with Worker(client, both(ran), poll_interval=HOUR):
            assert await client.wait(chain, timeout=PATIENCE) == 1


async def test_a_busy_worker_gives_back_what_it_has_claimed_ahead(setting: Setting, ahead: int) -> None:
    handlers, gate, ran = gated()
    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await one_running(client, worker)
        chains = await start(client, ahead)
        await held(client, 1 + ahead)
        await pause(client, Step)
        await held(client, 1)
        for chain in chains:
            record = await job(client, chain)
            assert (record.status, record.attempt_number, record.leased_by) == ("pending", 0, None)
        gate.open()
        await eventually(lambda: not worker._run._attempts.claims)  # type: ignore[union-attr]
        assert ran == [0], "the running one went on"
        await resume(client, Step)
        await eventually(lambda: len(ran) == 1 + ahead)
        assert await worker.stop()


async def test_only_what_is_paused_is_given_back(setting: Setting, ahead: int) -> None:
    handlers, gate, ran = gated()

    @handlers.handles(Light, queue="other")
    async def light(attempt: Attempt[Light]) -> int:
        ran.append(-1)
        return 0

    async with setting.connect([Step, Light]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval)
        await one_running(client, worker)
        async with client.transaction() as tx:
            await client.start_many(tx, [Step(number=7), Light(), Step(number=8), Light()])
        await held(client, 5)
        await pause(client, Queue("other"))
        await held(client, 3)
        gate.open()
        await eventually(lambda: ran == [0, 7, 8])
        await resume(client, Queue("other"))
        await eventually(lambda: ran == [0, 7, 8, -1, -1])
        assert await worker.stop()


@pytest.mark.drivers
async def test_running_handlers_are_told_to_stop(setting: Setting) -> None:
    """The job is put back, and the attempt does not count."""
    told: list[str | None] = []
    gate = Gate()
    handlers = Handlers[Any]()

    @handlers.handles(Step, max_attempts=1)
    async def step(attempt: Attempt[Step]) -> int:
        try:
            await gate()
        finally:
            told.append(attempt.signal.reason)
        return attempt.number

    async with setting.connect([Step]) as client, Worker(client, handlers, poll_interval=setting.poll_interval):
        (chain,) = await start(client, 1)
        await gate.arrival()
        await pause(client, EVERYTHING)
        await pause(client, Step, cancel_running=True, reason="PSP down", by="on-call")
        await eventually(lambda: told == ["paused"])
        await eventually(lambda: _is_pending(client, chain.id))
        record = await job(client, chain)
        assert (record.status, record.attempt_number, record.leased_by) == ("pending", 0, None)
        gate.open()
        await resume(client, Step)
        await resume(client, EVERYTHING)
        assert await client.wait(chain, timeout=PATIENCE) == 1
        assert told == ["paused", None]


async def test_without_it_running_handlers_go_on(setting: Setting) -> None:
    handlers, gate, ran = gated()
    points = Points()
    async with (
        watched(setting.connect([Step]), points) as client,
        Worker(client, handlers, poll_interval=setting.poll_interval),
    ):
        (chain,) = await start(client, 1)
        await gate.arrival()
        asked = points.counts["next_available_in.done"]
        await pause(client, Step)
        await eventually(lambda: points.counts["next_available_in.done"] > asked)
        gate.open()
        assert await client.wait(chain, timeout=PATIENCE) == 0
        assert ran == [0]


@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_plain_handlers_keep_their_job_until_they_end(setting: Setting, ending: str) -> None:
    go_on, told = threading.Event(), list[Any]()
    handlers = Handlers[Any]()

    @handlers.handles(Step, max_attempts=1, lease=30)
    def step(attempt: SyncAttempt[Step]) -> int:
        if attempt.job.number == 0 and not told:
            told.append(attempt.signal.wait_in_thread(PATIENCE))
            go_on.wait(PATIENCE)
            if ending == "raises":
                raise RuntimeError("stopped")
        return attempt.number

    async with setting.connect([Step]) as client:
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, renew_interval=0.05)
        async with worker:
            (chain,) = await start(client, 1)
            await eventually(lambda: _are_running(client, 1))
            await pause(client, Step, cancel_running=True)
            await eventually(lambda: told == ["paused"])
            paused_at = (await job(client, chain)).leased_until
            assert paused_at is not None

            async def is_renewed() -> bool:
                until = (await job(client, chain)).leased_until
                return until is not None and until > paused_at

            await eventually(is_renewed)
            assert await _are_running(client, 1)
            go_on.set()
            if ending == "raises":
                await eventually(lambda: _is_pending(client, chain.id))
                assert (await job(client, chain)).attempt_number == 0
                await resume(client, Step)
            assert await client.wait(chain, timeout=PATIENCE) == 1


async def test_one_that_was_not_committed_does_nothing(setting: Setting) -> None:
    handlers, gate, _ = gated()
    async with setting.connect([Step]) as client, Worker(client, handlers, poll_interval=setting.poll_interval):
        await start(client, 1)
        await gate.arrival()
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                await client.pause(tx, Step, cancel_running=True)
                raise ZeroDivisionError
        (chain,) = await start(client, 1)
        gate.open()
        assert await client.wait(chain, timeout=PATIENCE) == 0


@pytest.mark.parametrize("number", [1, 2], ids=["with a free slot", "with all slots busy"])
@pytest.mark.parametrize("state", ["sqlite", "postgres"])
async def test_another_process_hears_it(state: str, number: int, tmp_path: Path) -> None:
    """Its worker would look for itself once an hour."""
    setting = Setting(state, state, tmp_path)
    async with (
        queuert.connect(setting.url, jobs=[Step], poll_interval=0.05) as client,
        child("working_elsewhere", setting.url) as worker,
    ):
        assert await worker.says() == "idle"
        async with client.transaction() as tx:
            waiting = await client.start_many(tx, [Step(number=WAITS) for _ in range(number)])
        for _ in range(number):
            assert await worker.says() == "at work"
        await pause(client, Step, cancel_running=True)
        for _ in range(number):
            assert await worker.says() == "aborted: paused"
        await eventually(lambda: _are_running(client, 0))
        async with client.transaction() as tx:
            await client.cancel(tx, waiting)
        (chain,) = await start(client, 1)
        assert (await job(client, chain)).status == "pending"
        await resume(client, Step)
        assert await client.wait(chain, timeout=PATIENCE) == 0


async def test_what_is_paused_says_who_and_why(setting: Setting) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    async with setting.connect([Step]) as client:
        await pause(client, Step, until=end, reason="PSP down", by="on-call")
        await pause(client, Queue("slow"), cancel_running=True)
        one, two = await client.list_pauses()
        assert (one.target.scope, one.target.name, one.until, one.cancel_running) == ("queue", "slow", None, True)
        assert (two.target.scope, two.target.name, two.until) == ("type", "step", end)
        assert (two.reason, two.by) == ("PSP down", "on-call")
        for each in (one, two):
            await resume(client, each.target)
        assert await client.list_pauses() == []


async def _is_pending(client: Client[Any], job_id: str) -> bool:
    record = await client.get_job(job_id)
    return record is not None and record.status == "pending"


async def _are_running(client: Client[Any], number: int) -> bool:
    return len(await running(client)) == number
