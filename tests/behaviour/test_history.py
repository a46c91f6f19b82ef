"""What workers and clients do is counted, once, whatever fails; workers merge it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import eventually

from queuert import Attempt, Backoff, Client, EntryJob, Handlers, HistoryPoint, JobError, Keep, Worker


class Flaky(EntryJob[int], name="flaky"):
    number: int


class Gone(EntryJob[int], name="gone", keep=Keep(completed=0)):
    number: int


handlers = Handlers[Any]()


@handlers.handles(Flaky)
async def _flaky(attempt: Attempt[Flaky]) -> int:
    if attempt.job.number % 3 == 0 or (attempt.job.number % 3 == 1 and attempt.number == 1):
        raise JobError("NO", "it does not work")
    return 1


@handlers.handles(Gone)
async def _gone(attempt: Attempt[Gone]) -> int:
    return attempt.job.number


async def all_of(client: Client[Any], name: str) -> HistoryPoint:
    points = (await client.history(name)).types.get(name, [])
    total, *rest = points
    for point in rest:
        total += point
    return total


@pytest.mark.drivers
async def test_what_workers_do_is_counted_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queuert.features.retention.service.INTERVAL", (0.01, 0.02))
    async with setting.connect([Flaky, Gone]) as client:
        async with client.transaction() as tx:
            await client.start_many(tx, [Flaky(number=number) for number in range(12)])
            await client.start_many(tx, [Gone(number=number) for number in range(20)])
        options: Any = {"max_attempts": 2, "backoff": Backoff(initial=0.001), "concurrency": 5}
        async with Worker(client, handlers, **options, poll_interval=setting.poll_interval):
            await eventually(lambda: _ended(client))
            # A worker rolls up meanwhile: the numbers stay the same.
            for _ in range(3):
                flaky, gone = await all_of(client, "flaky"), await all_of(client, "gone")
                assert (flaky.begun, flaky.completed, flaky.failed, flaky.retried) == (20, 8, 4, 8)
                assert (flaky.waited.count, flaky.ran.count) == (20, 20)
                assert (gone.begun, gone.completed, gone.ran.count) == (20, 20, 20)
                assert (flaky.took.count, gone.took.count, flaky.lost) == (8, 20, 0)
                stats = {each.job_type: each.took for each in await client.stats(since=timedelta(hours=1))}
                assert (stats["flaky"].count, stats["gone"].count) == (8, 20)
                assert (stats["flaky"].quantile(0.5) or 0.0) <= (stats["flaky"].quantile(0.99) or 0.0)
                assert [each.took.count for each in await client.stats()] == [0], "not asked for"
                await asyncio.sleep(0)


async def _ended(client: Client[Any]) -> bool:
    flaky, gone = await client.history(Flaky), await client.history(Gone)
    return bool(
        sum(point.completed + point.failed for point in flaky.total()) == 12
        and sum(point.completed for point in gone.total()) == 20
    )


async def test_switched_off_nothing_is_written(setting: Setting) -> None:
    async with setting.connect([Flaky], statistics=False) as client:
        sessions = client.sessions
        async with client.transaction() as tx:
            chain = await client.start(tx, Flaky(number=2))
            await client.cancel(tx, chain)
        look = await sessions.run(sessions.engine.state.history(86400, timedelta(days=1).total_seconds()))
        assert look.tallies == []
