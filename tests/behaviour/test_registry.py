"""The workers that a client lists: where they are, what they serve, how busy they are, whether they are alive."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.behaviour.children import child
from tests.behaviour.conftest import Setting
from tests.behaviour.steps import Gate, Step, done, eventually, patiently, start
from tests.behaviour.watching import Points, watched

import queuert
from queuert import (
    Attempt,
    Client,
    EntryJob,
    Handlers,
    InvalidArgument,
    Queue,
    Worker,
    WorkerInfo,
    WorkerQueue,
    WorkerType,
)
from queuert.records.model import ClaimRequest, QueueLimit, TypeLimit
from queuert.records.workers import LastHandled
from queuert.worker.claims import presence


class Mail(EntryJob[None], name="mail", queue="mail"):
    pass


def quick() -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step)
    async def step(attempt: Attempt[Step]) -> int:
        return attempt.number

    return handlers


def held_by(gate: Gate) -> Handlers[Any]:
    handlers = Handlers[Any]()

    @handlers.handles(Step, concurrency=2)
    async def step(attempt: Attempt[Step]) -> int:
        await gate()
        return attempt.number

    @handlers.handles(Mail)
    async def mail(attempt: Attempt[Mail]) -> None:
        """Never called."""

    return handlers


async def only_worker(client: Client[Any]) -> WorkerInfo:
    (found,) = await client.list_workers()
    return found


async def last_handled(client: Client[Any], type_name: str = "step") -> LastHandled | None:
    (found,) = await client._run((client._engine.state.last_handled([type_name]), None))
    return found


async def is_listed(client: Client[Any], worker_id: str) -> bool:
    return worker_id in [each.id for each in await client.list_workers()]


@pytest.mark.drivers
async def test_what_is_listed(setting: Setting) -> None:
    gate = Gate()
    async with setting.connect([Step, Mail]) as client:
        assert await client.list_workers() == []
        worker = Worker(
            client,
            held_by(gate),
            name="shop",
            release="2026.11",
            concurrency=3,
            queues=[Queue("default", max_concurrency=7), Queue("mail", priority=5)],
            cluster_cap=50,
            poll_interval=setting.poll_interval,
        )
        async with worker:
            await start(client)
            await gate.arrival()
            found = await only_worker(client)
            assert found.id == worker.id
            assert found.id.startswith("shop-")
            assert (found.host, found.pid, found.release) == (socket.gethostname(), os.getpid(), "2026.11")
            assert found.version
            assert (found.state, found.slots, found.busy, found.held) == ("alive", 3, 1, 1)
            assert found.cluster_cap == 50
            members = (Step, Mail)
            assert found.queues == (
                WorkerQueue("default", (WorkerType("step", 2),), max_concurrency=7, members=("step", "ledger-entry")),
                WorkerQueue("mail", (WorkerType("mail"),), priority=5),
            )
            assert found.job_types == tuple(each.__name__.lower() for each in members)
            assert found.started_at == found.seen_at
            by_lock = setting.state == "postgres" and setting.notify == "postgres"
            assert found.known_by == ("process" if setting.state == "sqlite" else "lock" if by_lock else "registration")
            gate.open()
            await eventually(lambda: done(client, 1))
            assert ((await only_worker(client)).busy, (await only_worker(client)).held) == (0, 0)
        assert await client.list_workers() == []
        seen = await last_handled(client)
        assert seen is not None
        assert (seen.host, seen.release) == (socket.gethostname(), "2026.11")
        assert seen.seen_at >= found.seen_at


async def test_the_sync_client(sync_setting: Setting) -> None:
    async with (
        sync_setting.connect([Step]) as client,
        Worker(client, quick(), poll_interval=sync_setting.poll_interval) as worker,
    ):
        await eventually(lambda: is_listed(client, worker.id))
        with sync_setting.connect_sync([Step]) as other:
            (found,) = other.list_workers()
            assert (found.id, found.state) == (worker.id, "alive")
            with other.transaction() as tx:
                assert [each.id for each in other.list_workers(tx=tx)] == [worker.id]


@pytest.mark.parametrize("release", ["", "a" * 201, "a\0b", 7])
async def test_a_release_that_cannot_be_stored(release: Any) -> None:
    async with queuert.connect("memory://", jobs=[Step]) as client:
        with pytest.raises(InvalidArgument, match="release"):
            Worker(client, quick(), release=release)


async def test_jobs_cost_no_registration(setting: Setting) -> None:
    """One when the worker starts, whatever it runs."""
    points = Points()
    async with (
        watched(setting.connect([Step]), points) as client,
        Worker(client, quick(), concurrency=10, poll_interval=setting.poll_interval),
    ):
        await start(client, 300)
        await eventually(lambda: done(client, 300))
        assert points.counts["register_worker"] == 1


async def test_busy_is_never_more_than_the_slots(setting: Setting) -> None:
    """Jobs that are claimed ahead are held, and have no slot."""
    gate = Gate()
    async with setting.connect([Step, Mail]) as client:
        await start(client, 4)
        worker = Worker(client, held_by(gate), concurrency=1, prefetch=0, poll_interval=setting.poll_interval)
        async with worker:
            await gate.arrival()
            queue = QueueLimit("default", 100, (TypeLimit("step", 3, 60),), ("step",))
            await client._run((client._engine.state.claim(ClaimRequest(worker.id, 3, (queue,))), None))
            found = await only_worker(client)
            assert (found.slots, found.busy, found.held) == (1, 1, 4)
            gate.open()


async def test_a_row_that_was_cleaned_is_written_again(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was cut off for long: everything is told again, and the horizon is where it was."""
    points = Points()
    async with watched(setting.connect([Step]), points) as client:
        worker = Worker(client, quick(), release="r1", poll_interval=setting.poll_interval)
        async with worker:
            await eventually(lambda: is_listed(client, worker.id))
            before = await only_worker(client)
            worker._options.policy.ordinals.horizon = 77
            state = client._engine.state
            assert await client._run((state.clean_workers(unseen_for=-3600), None)) == [worker.id]
            monkeypatch.setattr(presence, "CHECK_INTERVAL", 0.01)
            assert worker._run is not None
            worker._run._presence.register_soon()
            worker._run._presence._interval = 0.0
            await eventually(lambda: is_listed(client, worker.id))
            (row,) = await client._run((state.list_workers(), None))
            assert row.horizon == 77
            after = await only_worker(client)
            assert (after.release, after.queues, after.state) == ("r1", before.queues, "alive")


@pytest.fixture(params=["sqlite", "psycopg", "asyncpg"])
def known(request: pytest.FixtureRequest, tmp_path: Path) -> Setting:
    """Where the death of another process can be known."""
    state = "postgres" if request.param == "psycopg" else request.param
    return Setting(state, "sqlite" if state == "sqlite" else "postgres", tmp_path)


async def test_a_killed_worker_is_listed_as_dead(known: Setting) -> None:
    async with known.connect([Step]) as client:
        (chain,) = await start(client)
        async with child("held_worker", known.url) as killed:
            assert await patiently(killed.says()) == "at work"
            before = await only_worker(client)
            assert (before.state, before.busy, before.slots) == ("alive", 1, 600)
            async with Worker(client, quick()) as other:
                killed.send(signal.SIGKILL)
                assert await client.wait(chain, timeout=45) == 2
                states = {each.id: (each.state, each.busy) for each in await client.list_workers()}
                assert states == {before.id: ("dead", 0), other.id: ("alive", 0)}
                assert await client._run((client._engine.state.handled_types(["step"]), None)) == ["step"]
        assert await client._run((client._engine.state.handled_types(["step"]), None)) == []
        seen = await last_handled(client)
        assert seen is not None
        assert seen.host == socket.gethostname()


async def test_a_stopped_process_is_alive(known: Setting) -> None:
    """It may go on at any time."""
    async with known.connect([Step]) as client:
        await start(client)
        async with child("held_worker", known.url) as stopped:
            assert await patiently(stopped.says()) == "at work"
            await stopped.stop_between_writes(known.url)
            assert (await only_worker(client)).state == "alive"
            stopped.send(signal.SIGCONT)
