"""Metric points: counters, durations, waiting times, slots, and what is stored."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, SOON, Gate, Step, eventually, patiently, start
from tests.behaviour.working import begin
from tests.observability.otel import Telemetry
from tests.support.jobs import JOBS, After, Greet, Receipt, Reserve

from queuert import Attempt, Client, Cron, Every, Handlers, JobError, StorageError, Worker
from queuert.features.observing.otel.metrics import COUNTERS, HISTOGRAMS, UP_DOWN_COUNTERS
from queuert.features.observing.otel.stats import GAUGES, OLDEST_READY_AGE, TOOK
from queuert.features.observing.otel.stats import JOBS as JOBS_GAUGE
from queuert.otel import StatsGauges
from queuert.ports.observer import EVENTS

handlers: Handlers[Any] = Handlers()


@handlers.handles(Greet)
async def greet(attempt: Attempt[Greet, Any]) -> str:
    if attempt.number == 1 and attempt.job.who == "nobody":
        raise JobError("NOBODY", "no")
    return "Hello"


async def finished(client: Client[Any], *chains: Any) -> None:
    async with Worker(client, handlers, backoff=SOON, poll_interval=0.02):
        for chain in chains:
            await client.wait(chain, timeout=PATIENCE)


async def test_counters_and_durations(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        chains = [await begin(client, Greet(who=who)) for who in ("you", "nobody")]
        order = await begin(client, Reserve(order_id=1))
        async with client.transaction() as tx, client.take_over(tx, order) as current:
            await current.settle(Receipt("p"))
        cancelled = await begin(client, Greet())
        async with client.transaction() as tx:
            await client.cancel(tx, cancelled)
        await finished(client, *chains)

    points = telemetry.points
    assert points("queuert.chain.created") == {("greet",): 3, ("reserve",): 1}
    assert points("queuert.job.created") == {("greet", "greet"): 3, ("reserve", "reserve"): 1}
    assert points("queuert.job.completed") == {("greet", "greet", False): 2, ("reserve", "reserve", False): 1}
    assert points("queuert.chain.completed") == {("greet",): 2, ("reserve",): 1}
    assert points("queuert.chain.cancelled") == {("greet",): 1}
    assert points("queuert.attempt.started") == {("greet", "greet"): 3}
    assert points("queuert.job.wait", count) == {("greet",): 3}
    assert points("queuert.attempt.failed") == {("greet", "greet", "NOBODY"): 1}
    assert points("queuert.attempt.completed") == {("greet", "greet"): 2}
    assert points("queuert.attempt.duration", count) == {("greet",): 3}
    assert points("queuert.chain.duration", count) == {
        ("greet", "completed"): 2,
        ("greet", "cancelled"): 1,
        ("reserve", "completed"): 1,
    }
    assert points("queuert.job.duration", count) == points("queuert.chain.duration", count)
    assert all(0 <= total < 60 for total in points("queuert.chain.duration", lambda point: point.sum).values())
    assert points("queuert.worker.started") == points("queuert.worker.stopped") == {(): 1}


def count(point: Any) -> int:
    return int(point.count)


async def test_slots(sqlite: Setting, telemetry: Telemetry) -> None:
    gate, registry = Gate(), Handlers[Any]()

    @registry.handles(Step)
    async def step(attempt: Attempt[Step, Any]) -> int:
        await gate()
        return 1

    @registry.handles(Greet)
    async def other(attempt: Attempt[Greet, Any]) -> str:
        return "Hello"

    async with sqlite.connect([Step, Greet], observers=[telemetry.observer]) as client:
        (chain,) = await start(client)
        async with Worker(client, registry, concurrency=3, poll_interval=3600):
            await gate.arrival()
            assert telemetry.points("queuert.slots.busy") == {("step",): 1}
            assert telemetry.points("queuert.slots.idle") == {("step",): 2, ("greet",): 2}
            gate.open()
            await client.wait(chain, timeout=PATIENCE)
            assert telemetry.points("queuert.slots.busy") == {("step",): 0}
            assert telemetry.points("queuert.slots.idle") == {("step",): 3, ("greet",): 3}

    assert telemetry.points("queuert.slots.idle") == {("step",): 0, ("greet",): 0}


async def test_a_rollback_counts_nothing(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as tx:
                chain = await client.start(tx, Greet())
                await client.cancel(tx, chain)
                raise ZeroDivisionError

    assert telemetry.points("queuert.chain.created") == {}
    assert telemetry.points("queuert.chain.cancelled") == {}


def test_every_event_has_a_counter(telemetry: Telemetry) -> None:
    assert set(COUNTERS) == set(EVENTS) - {"attempt_ended"}
    facts = {
        **dict.fromkeys(("chain_type", "job_type", "operation", "error_code", "status", "worker_id"), "x"),
        "duration": 1.0,
        "wait": 1.0,
        "job_types": ("x",),
        "concurrency": 1,
        "continued": True,
        "lag": 1.0,
        "triggered": False,
    }
    for event in EVENTS:
        getattr(telemetry.observer, event)(**facts)

    assert telemetry.metric_names() == {*COUNTERS.values(), *HISTOGRAMS, *UP_DOWN_COUNTERS}


async def test_how_late_a_tick_fires(setting: Setting, telemetry: Telemetry) -> None:
    """What is fired by hand counts as fired, but is not late."""
    async with setting.connect(JOBS, observers=[telemetry.observer]) as client:
        async with client.transaction() as tx:
            await client.put_schedule(tx, "often", Every(timedelta(milliseconds=50)), Greet())
            await client.put_schedule(tx, "later", Cron("@yearly"), Greet())
            await client.backfill(tx, "later", datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
        async with Worker(client, handlers):
            await eventually(lambda: telemetry.points("queuert.schedule.fired").get((), 0) >= 3)
    late = telemetry.points("queuert.schedule.lag", lambda point: point.count)[()]
    assert telemetry.points("queuert.schedule.fired")[()] == 1 + late


# What is stored


async def test_stats_as_gauges(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect(JOBS) as client:
        greeting = await begin(client, Greet(), after=3600)
        await begin(client, After(greeting=greeting))
        async with StatsGauges(client, interval=0.02, meter_provider=telemetry.meters):
            assert telemetry.points(JOBS_GAUGE) == {
                ("after", "blocked"): 1, ("after", "pending"): 0, ("after", "running"): 0, ("after", "failed"): 0,
                ("greet", "blocked"): 0, ("greet", "pending"): 1, ("greet", "running"): 0, ("greet", "failed"): 0,
            }  # fmt: skip
            assert telemetry.points(OLDEST_READY_AGE) == {("after",): 0.0, ("greet",): 0.0}
            assert telemetry.metric_names() == set(GAUGES) - {TOOK}, "nothing was completed"
            await begin(client, Greet())
            await eventually(lambda: telemetry.points(JOBS_GAUGE)[("greet", "pending")] == 2)
            await eventually(lambda: telemetry.points(OLDEST_READY_AGE)[("greet",)] > 0)
        assert telemetry.points(JOBS_GAUGE) == {}, "the block has ended"


async def test_stats_as_gauges_of_a_sync_client(sqlite: Setting, telemetry: Telemetry) -> None:
    with sqlite.connect_sync(JOBS) as client, StatsGauges(client, meter_provider=telemetry.meters):
        assert telemetry.points(JOBS_GAUGE) == {}
        with client.transaction() as tx:
            client.start(tx, Greet())
        assert telemetry.points(JOBS_GAUGE)[("greet", "pending")] == 1


async def test_how_long_completed_runs_took_as_gauges(sqlite: Setting, telemetry: Telemetry) -> None:
    """Also of a type that has no open jobs."""
    async with sqlite.connect(JOBS) as client:
        await begin(client, Greet())
        await Worker(client, handlers).drain()
        async with StatsGauges(client, meter_provider=telemetry.meters):
            points = telemetry.points(TOOK)
        assert {part for _, part in points} == {"0.5", "0.95", "0.99"}
        assert {kind for kind, _ in points} == {"greet"}
        assert points["greet", "0.5"] <= points["greet", "0.99"]


async def test_stats_that_cannot_be_read_are_not_shown(
    sqlite: Setting, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    async with sqlite.connect(JOBS) as client:
        await begin(client, Greet())
        async with StatsGauges(client, interval=0.01, meter_provider=telemetry.meters):
            right, broken = client.stats, asyncio.Event()

            async def fail(**_: Any) -> Any:
                broken.set()
                raise StorageError("no database")

            client.stats = fail  # type: ignore[method-assign]
            await patiently(broken.wait())
            await eventually(lambda: telemetry.points(JOBS_GAUGE) == {})
            client.stats = right  # type: ignore[method-assign]
            await eventually(lambda: telemetry.points(JOBS_GAUGE) != {})
    assert "reading the stats failed" in caplog.text
