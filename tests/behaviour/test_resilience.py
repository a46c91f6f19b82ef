"""Whatever fails in between, the work comes to its right end by itself, and takes effect once."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
from tests.behaviour.conftest import Setting, ledger, write
from tests.behaviour.flaky import FlakyNotify, Weather
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, done, eventually, job, start, tasks
from tests.behaviour.watching import Points, watched

from queuert import Attempt, Backoff, Chain, Client, Dedup, EntryJob, Handlers, Job, StorageError, Worker
from queuert.base import failure_log


class Countdown(EntryJob[int, "Countdown | Landed"], name="countdown"):
    left: int
    name: str


class Landed(Job[int], name="landed"):
    name: str


class Total(EntryJob[int], name="total"):
    parts: list[Chain[Countdown]]


class Once(EntryJob[str], name="once"):
    key: str


def workload(seed: int) -> Handlers[Any]:
    """Handlers in all styles, some of which fail for reasons of their own."""
    handlers, chance = Handlers[Any](backoff=Backoff(initial=0.01, maximum=0.05)), random.Random(seed)

    @handlers.handles(Countdown)
    async def countdown(attempt: Attempt[Countdown]) -> Countdown | Landed:
        count = attempt.job
        if chance.random() < 0.1:
            raise RuntimeError("a bad day")
        if count.left % 3 == 0:
            async with attempt.prepare("staged") as tx:
                await attempt.client.get_chain(attempt.chain_id, tx=tx)
        await asyncio.sleep(0)
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"{count.name}: {count.left}")
            if count.left == 0:
                await attempt.client.start(tx, Once(key=count.name[0]), dedup=Dedup(count.name[0], scope="any"))
                return Landed(name=count.name)
            return Countdown(left=count.left - 1, name=count.name)

    @handlers.handles(Landed)
    async def landed(attempt: Attempt[Landed]) -> int:
        return len(attempt.job.name)

    @handlers.handles(Total)
    async def total(attempt: Attempt[Total]) -> int:
        return sum(part.output for part in attempt.job.parts)

    @handlers.handles(Once)
    async def once(attempt: Attempt[Once]) -> str:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, f"once {attempt.job.key}")
            return attempt.job.key

    return handlers


JOBS = (Countdown, Total, Once)
GROUPS = "abcd"


async def start_workload(client: Client[Any]) -> tuple[list[Chain[Countdown]], list[Chain[Total]]]:
    parts: list[Chain[Countdown]] = []
    totals: list[Chain[Total]] = []
    for group in GROUPS:
        async with client.transaction() as tx:
            mine = await client.start_many(tx, [Countdown(left=left, name=f"{group}{left}") for left in range(6)])
            totals.append(await client.start(tx, Total(parts=mine)))
            parts += mine
    return parts, totals


@pytest.mark.drivers
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 10))])
async def test_a_whole_workload_in_bad_weather(setting: Setting, seed: int) -> None:
    storm, gusts = Weather(seed, good=120, bad=4), Weather(seed + 100, good=6, bad=6)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(setting.connect(JOBS))
        parts, totals = await start_workload(client)
        for _ in range(2):
            points = Points(records=False)
            inner = setting.connect(JOBS)
            own = watched(inner, points, notify=FlakyNotify(inner.sessions.channel, gusts))
            await stack.enter_async_context(own)
            points.visit = storm.step
            options = {"lease": 2, "renew_interval": 0.1, "poll_interval": 0.05, "recovery_backoff": SOON}
            worker = Worker(own, workload(seed), concurrency=8, **options)  # type: ignore[arg-type]
            await stack.enter_async_context(worker)
        for total in totals:
            assert await client.wait(total, timeout=2 * PATIENCE) == 12
        for part in parts:
            assert await client.wait(part, timeout=2 * PATIENCE) == 2

        async def nothing_is_left() -> bool:
            return not await client.stats() or [stats.job_type for stats in await client.stats()] == ["ledger-entry"]

        await eventually(nothing_is_left)
        lines = Counter(await ledger(client))
        steps = [f"{group}{length}: {left}" for group in GROUPS for length in range(6) for left in range(length + 1)]
        assert lines == Counter([*steps, *(f"once {group}" for group in GROUPS)])
        assert storm.failures > 10
        storm.clear_up()
        gusts.clear_up()
    assert not tasks()


@pytest.mark.parametrize("point", ["reap", "next_available_in"])
async def test_what_fails_for_ever_keeps_no_job_from_running(setting: Setting, point: str) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        points.fail_times(point, 10_000)
        async with Worker(client, handlers, poll_interval=0.02, recovery_backoff=SOON):
            await eventually(lambda: points.counts[point] >= 2)
            for number in (1, 2):
                await start(client, 1)
                await eventually(partial(done, client, number))
        points.mend(point)


@pytest.mark.drivers
@pytest.mark.parametrize("point", ["claim", "claim.done", "reap", "next_available_in", "settle", "renew"])
async def test_each_place_of_the_loop_recovers(setting: Setting, point: str) -> None:
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    async with watched(setting.connect([Step]), points) as client:
        points.fail(point, StorageError("gone"), OSError("unreachable"), RuntimeError("what a driver may raise"))
        soon: Any = {"poll_interval": 0.05, "recovery_backoff": SOON}
        async with Worker(client, handlers, concurrency=2, lease=2, renew_interval=0.1, **soon):
            await start(client, 6)
            await eventually(lambda: done(client, 6))


async def test_failures_do_not_make_a_busy_loop(setting: Setting, caplog: pytest.LogCaptureFixture) -> None:
    """A wake-up that came before the failure must not cut the pause short."""
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return 0

    async with watched(setting.connect([Step]), points) as client:
        hour = Backoff(initial=3600, maximum=3600)
        worker = Worker(client, handlers, poll_interval=setting.poll_interval, recovery_backoff=hour)
        async with worker:
            await eventually(lambda: points.counts["next_available_in.done"])
            points.fail_times("claim", 1000)
            claims = points.counts["claim"]
            draining = asyncio.create_task(worker.drain())
            await start(client, 3)
            await eventually(lambda: points.counts["claim"] > claims)
            for _ in range(50):
                await client.sessions.channel.publish("job_scheduled", ["step"])
                await asyncio.sleep(0)
            assert points.counts["claim"] == claims + 1
        await draining


async def test_the_backoff_grows_and_a_good_turn_resets_it(
    setting: Setting, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_log, "INTERVAL", 0.0)  # every failure is logged
    handlers, points = Handlers[Any](), Points()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return 0

    def delays() -> list[float]:
        records = [record for record in caplog.records if "a turn of the main loop failed" in record.getMessage()]
        return [record.args[1] for record in records]  # type: ignore[index,misc]

    async with watched(setting.connect([Step]), points) as client:
        points.fail_times("reap", 3)
        backoff = Backoff(initial=0.01, multiplier=2, maximum=0.03)
        async with Worker(client, handlers, renew_interval=0.02, poll_interval=0.02, recovery_backoff=backoff):
            await eventually(lambda: points.counts["reap.done"] >= 3)
            points.fail_times("reap", 1)
            await eventually(lambda: len(delays()) == 4)
        assert delays() == [0.01, 0.02, 0.03, 0.01]


class BrokenNotify(FlakyNotify):
    """Fails at the named calls for as long as `broken` says so."""

    def __init__(self, notify: Any, *calls: str) -> None:
        super().__init__(notify, self)  # type: ignore[arg-type]
        self.calls = calls
        self.broken = True
        self.failures = 0

    def step(self, where: str) -> None:
        if self.broken and where in self.calls:
            self.failures += 1
            raise ConnectionError(f"{where} failed, on purpose")


@pytest.mark.channels
@pytest.mark.parametrize("call", ["listen_job_scheduled", "listen_ownership_lost"])
async def test_a_channel_that_cannot_be_listened_to_means_polling_until_it_can(
    setting: Setting, call: str, caplog: pytest.LogCaptureFixture
) -> None:
    if not setting.notify:
        pytest.skip("there is no channel")
    handlers, points, gate = Handlers[Any](), Points(), Gate()
    reasons: list[Any] = []

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        if attempt.job.number == 1:
            try:
                await gate()
            finally:
                reasons.append(attempt.signal.reason)
        return attempt.job.number

    inner = setting.connect([Step])
    notify = BrokenNotify(inner.sessions.channel, call)
    async with watched(inner, points, notify=notify) as client:
        async with Worker(client, handlers, concurrency=2, lease=3600, poll_interval=0.05):
            await start(client)
            await eventually(lambda: done(client, 1))
            await eventually(lambda: notify.failures >= 3)
            warnings = [record for record in caplog.records if "cannot listen" in record.getMessage()]
            assert len(warnings) == 1, "said once, not at every try"
            notify.broken = False
            chains = await start(client, 2)
            await gate.arrival()
            # It listens again: a lost job is noticed without a renewal, which is an hour away.

            async def cancelled() -> bool:
                async with client.transaction() as tx:
                    await client.cancel(tx, chains[1])
                await client.sessions.channel.publish("ownership_lost", [chains[1].id])
                return bool(reasons)

            await eventually(cancelled)
        assert reasons == ["cancelled"]


@pytest.mark.channels
@pytest.mark.parametrize("call", ["provide_wake_hints", "job_scheduled", "chain_ended", "consume_wake_hint", "dispose"])
async def test_a_broken_channel_fails_no_job(setting: Setting, call: str) -> None:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        async with attempt.complete() as tx:
            await write(attempt.client, tx, "done")
            return 1

    inner = setting.connect([Step])
    notify = BrokenNotify(inner.sessions.channel, call)
    async with watched(inner, Points(), notify=notify) as client:
        worker = Worker(client, handlers, poll_interval=0.05)
        async with worker:
            (chain,) = await start(client)
            assert await client.wait(chain, timeout=45) == 1
        assert (await job(client, chain)).attempt_number == 1
        assert await ledger(client) == ["done"]
        await eventually(lambda: notify.failures or call in ("consume_wake_hint", "dispose"))
