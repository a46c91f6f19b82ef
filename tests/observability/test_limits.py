"""What observers, logs, metrics and stats tell of limits."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import patiently
from tests.observability.otel import Telemetry
from tests.observability.recorder import Recorder

from queuert import Attempt, EntryJob, Handlers, Limit, RateLimited, Worker
from queuert.logging import EventLog
from queuert.otel import StatsGauges


class Fetch(EntryJob[None], name="fetch", limit=Limit("partner-api", by="partner", concurrency=1)):
    partner: str


class Plain(EntryJob[None], name="plain"):
    pass


handlers: Handlers[Any] = Handlers()


@handlers.handles(Fetch)
async def fetch(attempt: Attempt[Fetch]) -> None:
    if not refused:
        refused.append(attempt.job.partner)
        raise RateLimited(0.05)


@handlers.handles(Plain)
async def plain(attempt: Attempt[Plain]) -> None:
    return None


refused: list[str] = []


@pytest.fixture(autouse=True)
def nothing_refused() -> None:
    refused.clear()


async def test_events_name_the_limit_and_the_key(
    setting: Setting, recorder: Recorder, telemetry: Telemetry, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "queuert.limit")
    observers = [recorder, telemetry.observer, EventLog()]
    async with setting.connect([Fetch, Plain], observers=observers) as client:
        async with client.transaction() as tx:
            chain = await client.start(tx, Fetch(partner="acme"))
            other = await client.start(tx, Plain())
        async with Worker(client, handlers) as worker:
            for each in (chain, other):
                await patiently(client.wait(each))

    for event in ("job_created", "attempt_started", "attempt_ended"):
        named = {facts["job_type"]: (facts["limit"], facts["limit_key"]) for facts in recorder.of(event)}
        assert named == {"fetch": ("partner-api", "acme"), "plain": (None, None)}
    (closed,) = recorder.of("limit_closed")
    assert (closed["limit"], closed["limit_key"], closed["closed_for"]) == ("partner-api", "acme", 0.05)
    assert (closed["chain_id"], closed["attempt_number"], closed["worker_id"]) == (chain.id, 1, worker.id)
    (record,) = [each for each in caplog.records if each.name == "queuert.limit"]
    assert record.getMessage().endswith("closed key 'acme' of the limit partner-api for 0.050 s")
    assert record.__dict__["limit_key"] == "acme"
    assert telemetry.points("queuert.limit.closed") == {("fetch", "fetch", "partner-api"): 1}
    started = {("fetch", "fetch", "partner-api"): 2, ("plain", "plain"): 1}
    assert telemetry.points("queuert.attempt.started") == started


async def test_stats_count_jobs_with_a_limit(setting: Setting, telemetry: Telemetry) -> None:
    async with setting.connect([Fetch, Plain]) as client:
        async with client.transaction() as tx:
            await client.start_many(tx, [Fetch(partner=name) for name in "aab"])
            await client.start(tx, Fetch(partner="a").set(after=3600))
            await client.start(tx, Plain())
        stats = {each.job_type: (each.pending, each.limited) for each in await client.stats()}
        assert stats == {"fetch": (4, 3), "plain": (1, 0)}
        async with StatsGauges(client, meter_provider=telemetry.meters):
            points = telemetry.points("queuert.jobs.limited")
    assert sorted(points.values()) == [0, 3]
