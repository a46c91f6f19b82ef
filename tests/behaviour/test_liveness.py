"""Jobs of a worker that is known to be dead are taken back long before their lease ends, and no others."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.postgres.drivers import Watcher
from tests.adapters.postgres.ears import LISTENER
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import PATIENCE, Gate, Step, eventually, job, running, start
from tests.behaviour.watching import Points, watched
from tests.conformance.postgres_harness import database
from tests.support.pgbouncer import needs_pgbouncer, pgbouncer
from tests.support.postgres import PostgresServer

import queuert
from queuert import Attempt, Backoff, Client, Handlers, StorageUnavailable, Worker
from queuert.adapters.broadcast.pauses import Pauses
from queuert.adapters.postgres.installation import WORKER_SPACE
from queuert.adapters.postgres.notify.asyncpg import AsyncpgChannels
from queuert.adapters.postgres.notify.psycopg import PsycopgChannels
from queuert.records.workers import WorkerRow
from queuert.worker.claims import presence

LOOKS = int(6 * presence.GRACE / presence.LOOK_INTERVAL)
"""How often a worker asks for dead ones in three times the grace, at most: twice with each look."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are a quarter. For tests in which no worker has to be quicker than the grace."""
    monkeypatch.setattr(presence, "GRACE", presence.GRACE / 4)
    monkeypatch.setattr(presence, "LOOK_INTERVAL", presence.LOOK_INTERVAL / 4)


def numbering() -> Handlers[Any]:
    """Each job answers with the number of its attempt."""
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.number

    return handlers


def waiting(gate: Gate) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.number

    return handlers


async def workers(client: Client[Any]) -> dict[str, WorkerRow]:
    rows = await client._run((client._engine.state.list_workers(), None))
    return {row.id: row for row in rows}


async def looks(points: Points, number: int = LOOKS) -> None:
    """Until the worker has looked for dead ones so many times more."""
    before = points.counts["dead_workers.done"]
    await eventually(lambda: points.counts["dead_workers.done"] >= before + number)


@pytest.fixture(params=["sqlite", "psycopg", "asyncpg"])
def known(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    """Where the death of another process can be known."""
    state = "postgres" if request.param == "psycopg" else request.param
    return Setting(state, "sqlite" if state == "sqlite" else "postgres", tmp_path)


@pytest.fixture(params=["psycopg", "asyncpg"])
def scheme(request: pytest.FixtureRequest) -> str:
    return "postgresql+asyncpg" if request.param == "asyncpg" else "postgresql"


async def test_a_killed_worker_loses_its_job_long_before_the_lease_ends(known: Setting) -> None:
    async with known.connect([Step]) as client:
        (chain,) = await start(client)
        async with child("held_worker", known.url) as dead:
            assert await dead.says() == "at work"
            async with Worker(client, numbering()):
                dead.send(signal.SIGKILL)
                assert await client.wait(chain, timeout=PATIENCE) == 2  # its lease ends in an hour
        assert (await job(client, chain)).attempt_number == 2


async def test_many_jobs_of_a_killed_worker(known: Setting) -> None:
    """More than are taken back at once."""
    async with known.connect([Step]) as client:
        await start(client, 600)
        async with child("held_worker", known.url) as dead:
            assert await dead.says() == "at work"
            await eventually(lambda: _holds(client, 600))
            dead.send(signal.SIGKILL)
            await dead.exit_code()
            ran: list[int] = []
            handlers = Handlers[Any]()

            @handlers.handles(Step)
            async def step(attempt: Attempt[Step]) -> int:
                ran.append(attempt.job.number)
                return 0

            async with Worker(client, handlers, concurrency=50):
                await eventually(lambda: len(ran) == 600)
            assert sorted(ran) == list(range(600))


async def test_a_missing_lock_is_looked_at_again_at_the_end_of_the_grace(
    known: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the next look is far away. One look more is enough, however long the first one took."""
    monkeypatch.setattr(presence, "LOOK_INTERVAL", 3600.0)
    monkeypatch.setattr(presence, "LOOK_AFTER", 0.01)
    points = Points()

    async def take_long() -> None:
        if points.counts["dead_workers"] == 1:
            await asyncio.sleep(0.1)

    points.at("dead_workers", take_long)
    async with watched(known.connect([Step]), points) as client:
        (chain,) = await start(client)
        async with child("held_worker", known.url) as dead:
            assert await dead.says() == "at work"
            (held,) = await workers(client)
            dead.send(signal.SIGKILL)
            await dead.exit_code()

        async def is_missing() -> bool:
            return (await workers(client))[held].state != "alive"

        await eventually(is_missing)
        async with Worker(client, numbering()):
            assert await client.wait(chain, timeout=PATIENCE) == 2
        assert points.counts["dead_workers.done"] <= 4, "two statements for each look"


async def _holds(client: Client[Any], number: int) -> bool:
    return len(await running(client)) >= number


@pytest.mark.usefixtures("hasty")
async def test_a_stopped_process_keeps_its_job(known: Setting) -> None:
    points = Points()
    async with watched(known.connect([Step]), points) as client:
        (chain,) = await start(client)
        async with child("held_worker", known.url) as stopped:
            assert await stopped.says() == "at work"
            await stopped.stop_between_writes(known.url)
            async with Worker(client, numbering()):
                await looks(points)
                assert await running(client) == [chain.id]
                stopped.send(signal.SIGCONT)
                stopped.tell()
                assert await client.wait(chain, timeout=45) == 1


async def test_a_worker_that_stops_is_forgotten(setting: Setting) -> None:
    gate = Gate()
    async with setting.connect([Step]) as client:
        async with Worker(client, waiting(gate), poll_interval=setting.poll_interval) as worker:
            (chain,) = await start(client)
            await gate.arrival()
            row = (await workers(client))[worker.id]
            assert (row.lock_key is not None) == (setting.state == "postgres" and setting.notify == "postgres")
            assert (row.process is not None) == (setting.state == "sqlite")
            gate.open()
            assert await client.wait(chain, timeout=45) == 1
        assert await workers(client) == {}


async def test_the_lock_is_held_before_the_first_claim_until_the_worker_stops(scheme: str, tmp_path: Path) -> None:
    """Also if another worker goes on with the same connection."""
    setting, points = Setting("asyncpg" if "asyncpg" in scheme else "postgres", "postgres", tmp_path), Points()
    watch, gate = Watcher(database()), Gate()
    locks = f"SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND classid = {WORKER_SPACE}"
    found: list[list[int]] = []

    async def look() -> None:
        found.append(watch(locks))

    points.at("claim", look)
    async with watched(setting.connect([Step]), points) as client:
        one, two = Worker(client, waiting(gate)), Worker(client, waiting(gate))
        await one.start()
        await eventually(lambda: found)
        (first,) = found[0]
        await two.start()
        await eventually(lambda: len(watch(locks)) == 2)
        (row,) = [row for row in (await workers(client)).values() if row.id == one.id]
        assert row.lock_key == first
        assert await one.stop()
        (second,) = watch(locks)
        assert second != first
        assert await two.stop()
        await watch.until_gone(LISTENER)
        assert watch(locks) == []
    watch.close()


@pytest.mark.usefixtures("hasty")
async def test_a_worker_that_stops_with_a_job_keeps_it_until_the_lease_ends(known: Setting) -> None:
    """Its handler may still be at work: the process is there."""
    gate, points = Gate(), Points()
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        while not gate.is_open:
            try:
                await gate()
            except asyncio.CancelledError:
                continue
        return attempt.number

    async with known.connect([Step]) as client, watched(known.connect([Step]), points) as other:
        worker = Worker(client, handlers, shutdown_timeout=0.05)
        await worker.start()
        (chain,) = await start(client)
        await gate.arrival()
        assert not await worker.stop()
        assert (await workers(client))[worker.id].lock_key is None
        async with Worker(other, numbering()):
            await looks(points)
            assert await running(client) == [chain.id]
        gate.open()


async def test_without_a_channel_the_lease_decides(scheme: str, tmp_path: Path) -> None:
    setting = Setting("asyncpg" if "asyncpg" in scheme else "postgres", None, tmp_path)
    async with setting.connect([Step]) as client, Worker(client, numbering(), poll_interval=0.05) as worker:
        await eventually(lambda: _is_known(client, worker))
        assert (await workers(client))[worker.id].lock_key is None


async def _is_known(client: Client[Any], worker: Worker) -> bool:
    return worker.id in await workers(client)


@asynccontextmanager
async def cut_off(scheme: str, points: Points) -> AsyncGenerator[tuple[Client[Any], Gate, Watcher, Worker]]:
    """A worker with a job, another one that would take it, and somebody who can cut their listening connections."""
    setting, gate = Setting("asyncpg" if "asyncpg" in scheme else "postgres", "postgres", Path()), Gate()
    watch = Watcher(database())
    try:
        async with (
            setting.connect([Step]) as client,
            watched(setting.connect([Step]), points) as other,
            Worker(client, waiting(gate)) as worker,
        ):
            await start(client)
            await gate.arrival()
            async with Worker(other, numbering()):
                yield client, gate, watch, worker
    finally:
        watch.close()


async def cuts(scheme: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cut comes when the worker has its lock again."""
    monkeypatch.setattr(Pauses, "STEADY", 0.0)
    points = Points()
    async with cut_off(scheme, points) as (client, gate, watch, worker):

        async def is_back() -> bool:
            row = (await workers(client))[worker.id]
            return row.lock_key is not None and row.silent_since is None and len(watch.others(LISTENER)) == 2

        for _ in range(number):
            await eventually(is_back)
            assert watch.terminate_others(LISTENER) == 2
        await looks(points)
        (running_job,) = await running(client)
        gate.open()
        assert await client.wait(running_job, timeout=45) == 1


async def test_a_cut_listening_connection_costs_no_job(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await cuts(scheme, 6, monkeypatch)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_two_hundred_cuts_cost_no_job(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await cuts(scheme, 200, monkeypatch)


async def refused(*_: Any) -> None:
    raise StorageUnavailable("no more connections")


async def test_a_listening_connection_that_does_not_come_back(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker cannot listen any more, but it is alive, and says so by its row."""
    points = Points()
    async with cut_off(scheme, points) as (client, gate, watch, worker):

        async def has_lock() -> bool:
            return (await workers(client))[worker.id].lock_key is not None

        async def has_none() -> bool:
            return not await has_lock()

        await eventually(has_lock)
        for channels in (PsycopgChannels, AsyncpgChannels):
            monkeypatch.setattr(channels, "subscribe", refused)
        watch.terminate_others(LISTENER)
        await eventually(has_none)
        await looks(points)
        (running_job,) = await running(client)
        gate.open()
        assert await client.wait(running_job, timeout=45) == 1


async def test_nobody_is_dead_after_a_restart_of_the_server(scheme: str, own_server: PostgresServer) -> None:
    gate, points = Gate(), Points()
    url = own_server.url.replace("postgresql:", f"{scheme}:")
    soon: Any = {"recovery_backoff": Backoff(initial=0.05, maximum=0.2)}
    connect: Callable[[], Client[Any]] = lambda: queuert.connect(url, jobs=[Step], poll_interval=0.05)  # noqa: E731
    async with connect() as client, watched(connect(), points) as other, Worker(client, waiting(gate), **soon):
        await start(client)
        await gate.arrival()
        async with Worker(other, numbering(), **soon):
            await looks(points, 2)
            await asyncio.to_thread(own_server.restart, immediate=True)
            await looks(points)
            (running_job,) = await running(client)
            gate.open()
            assert await client.wait(running_job, timeout=45) == 1


@needs_pgbouncer
async def test_through_a_pooler_the_lease_decides(scheme: str, tmp_path: Path) -> None:
    """A session lock would stay on a connection that others get. Listening itself does not work there, either."""
    Setting("postgres", None, tmp_path)
    url = pgbouncer().through(database()).replace("postgresql:", f"{scheme}:")
    async with (
        queuert.connect(url, jobs=[Step], poll_interval=0.05, prepare=False) as client,
        Worker(client, numbering(), poll_interval=0.05) as worker,
    ):
        (chain,) = await start(client)
        assert await client.wait(chain, timeout=45) == 1
        assert (await workers(client))[worker.id].lock_key is None
    watch = Watcher(database())
    assert watch(f"SELECT objid FROM pg_locks WHERE locktype = 'advisory' AND classid = {WORKER_SPACE}") == []
    watch.close()
