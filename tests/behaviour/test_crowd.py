"""Many idle workers hear of one job, over a channel that keeps no hints: a few of them claim it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Literal

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.behaviour.steps import PATIENCE, Step, eventually, start
from tests.behaviour.watching import Points, watched
from tests.conformance.postgres_harness import database, empty
from tests.support.ears import Ear

import queuert
from queuert import Attempt, Handlers, Worker
from queuert.ports.notify import Announced
from queuert.worker.claims import crowd
from queuert.worker.claims.crowd import AT_ONCE
from queuert.worker.claims.wake import Wake

SCHEMES = ["postgresql", "postgresql+asyncpg"]


@pytest.fixture
def watch() -> Iterator[Watcher]:
    empty()
    watcher = Watcher(database())
    yield watcher
    watcher.close()


def handlers_of() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.job.number

    return handlers


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_one_start_causes_few_claims(watch: Watcher, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of twelve workers, on two clients. The others would claim later than this test lasts."""
    monkeypatch.setattr(crowd, "OFTEN", 0.05)
    monkeypatch.setattr(crowd, "EARLIEST", 600.0)
    monkeypatch.setattr(crowd, "LATEST", 900.0)
    url = database().replace("postgresql://", f"{scheme}://")
    points, workers, woken = Points(), list[Worker](), set[Wake]()
    should_claim = Wake.should_claim

    async def noted(self: Wake, able: bool) -> bool:
        wanted = await should_claim(self, able)
        if wanted:
            woken.add(self)
        return wanted

    monkeypatch.setattr(Wake, "should_claim", noted)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(watched(queuert.connect(url, jobs=[Step]), points)) for _ in range(2)
        ]
        for client in clients:
            for _ in range(6):
                worker = Worker(client, handlers_of(), poll_interval=3600)
                workers.append(await stack.enter_async_context(worker))
        await eventually(lambda: all(_knows(worker, 12) for worker in workers))
        client = clients[0]
        # Each has asked once when it began, and once more after it listens.
        await eventually(lambda: points.counts["next_available_in.done"] >= 12)
        before = points.counts["claim"]
        for _ in range(5):
            (chain,) = await start(client)
            await client.wait(chain, timeout=PATIENCE)
        # Counted together: one that is slow claims when the next job is there. The one that has run
        # a job claims again.
        assert 5 <= points.counts["claim"] - before <= 5 * (AT_ONCE + 2)
        # Enough jobs for all: all of them are woken.
        woken.clear()
        chains = await start(client, 40)
        await eventually(lambda: len(woken) == 12)
        for chain in chains:
            await client.wait(chain, timeout=PATIENCE)


@pytest.mark.parametrize("announce", ["background", "wait"])
@pytest.mark.parametrize("scheme", SCHEMES)
async def test_an_announcement_tells_how_many_jobs_there_are(
    watch: Watcher, scheme: str, announce: Literal["background", "wait"]
) -> None:
    """Those of one announcement do not count for the next."""
    ear, url = Ear(), database().replace("postgresql://", f"{scheme}://")
    async with queuert.connect(url, jobs=[Step], announce=announce) as client:
        await client.sessions.channel.listen("job_scheduled", ear)
        for times, number in enumerate((1000, 1, 7), 1):
            await start(client, number)
            await ear.until("step", times)
    assert _announced(ear) == [1000, 1, 7]


@pytest.mark.parametrize("announce", ["background", "wait"])
async def test_an_announcement_of_a_sync_client_tells_it_too(
    watch: Watcher, announce: Literal["background", "wait"]
) -> None:
    def start_all() -> None:
        with queuert.connect_sync(database(), jobs=[Step], announce=announce) as client, client.transaction() as tx:
            client.start_many(tx, [Step()] * 1000)

    ear = Ear()
    async with queuert.connect(database(), jobs=[Step]) as listening:
        await listening.sessions.channel.listen("job_scheduled", ear)
        await asyncio.to_thread(start_all)
        await ear.until("step")
    assert _announced(ear) == [1000]


def _announced(ear: Ear) -> list[int]:
    return [value.draw.jobs for value in ear.heard if isinstance(value, Announced)]


def _knows(worker: Worker, number: int) -> bool:
    run: Any = worker._run
    return bool(run._crowd._places.get("step", (0, 0))[1] == number)


@pytest.mark.parametrize("scheme", SCHEMES)
async def test_those_who_were_chosen_are_gone(watch: Watcher, scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand workers are known, and one of them is here. It does not poll."""
    monkeypatch.setattr(crowd, "OFTEN", 0.05)
    url = database().replace("postgresql://", f"{scheme}://")
    async with queuert.connect(url, jobs=[Step]) as client:
        watch(
            "INSERT INTO queuert_worker (id, registered_at, seen_at, horizon, server_started) "
            "SELECT 'gone-' || n, now(), now(), 0, now() FROM generate_series(1, 999) AS n"
        )
        watch(
            "INSERT INTO queuert_worker_about (id, types, about, told_at) "
            "SELECT 'gone-' || n, ARRAY['step'], '{}', now() FROM generate_series(1, 999) AS n"
        )
        async with Worker(client, handlers_of(), poll_interval=3600) as worker:
            await eventually(lambda: _knows(worker, 1000))
            for _ in range(3):
                (chain,) = await start(client)
                await client.wait(chain, timeout=PATIENCE)
